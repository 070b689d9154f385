/*
 * table_graph.h - the entry points of captures, graphs and user objects.
 *
 * The second half of table.h; see there.
 */
#ifndef SIM_TABLE_GRAPH_H
#define SIM_TABLE_GRAPH_H

#define SIM_TABLE_CAPTURE(F, S)                                                        \
	F(cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode)

#define SIM_TABLE_GRAPH(F, S)                                                          \
	F(cuUserObjectCreate, 11030, cuUserObjectCreate)                               \
	F(cuUserObjectRetain, 11030, cuUserObjectRetain)                               \
	F(cuUserObjectRelease, 11030, cuUserObjectRelease)                             \
	F(cuGraphRetainUserObject, 11030, cuGraphRetainUserObject)                     \
	F(cuGraphReleaseUserObject, 11030, cuGraphReleaseUserObject)

#endif
