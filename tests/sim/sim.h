/* SPDX-License-Identifier: MIT */
/*
 * sim.h - the inside of the simulated CUDA driver: types, and what its files
 * offer each other.
 *
 * Locks: there is one big lock. Every entry point takes it with SIM_LOCKED and
 * holds it until it returns; every function declared here runs under it unless
 * its comment says "no lock". While it is held nothing of the program runs:
 * host functions and destructors run on the driver's own thread, without it.
 * A thread that waits for that thread lets the lock go meanwhile. Entry points
 * that only read thread-local state (SIM_ENTER alone) take no lock.
 *
 * Two books of order are kept, on purpose by different means:
 *   operations   what waits for what (schedule.c); decides when work runs, so
 *                that a missing wait shows as wrong data;
 *   clocks       vector clocks of streams, events, contexts and the host
 *                (clock.c, hazard.c); report accesses that may overlap even
 *                when this run's schedule kept them apart.
 */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* All versions of all prototypes, none renamed by macro. */
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include "gcpsim.h"
#include "entries.h"

/* F(name, since, symbol), or S(name, since, symbol, twin) of those that have a twin for
 * the default stream of each thread: entries.list. */
enum sim_fn {
#define SIM_F(name, since, symbol)      SIM_FN_##symbol,
#define SIM_S(name, since, symbol, per) SIM_FN_##symbol,
	SIM_TABLE(SIM_F, SIM_S)
#undef SIM_F
#undef SIM_S
	    SIM_FN_COUNT
};

enum {
	SIM_DEVICES_MAX = 16,
	SIM_CTX_DEPTH_MAX = 64,
	SIM_ACCESS_MAX = 3,
};

/* --- objects ----------------------------------------------------------------- */

enum sim_kind {
	SIM_CTX = 1,
	SIM_STREAM,
	SIM_EVENT,
	SIM_MODULE,
	SIM_FUNCTION,
	SIM_POOL,
	SIM_ARRAY,
	SIM_PHYSICAL,
	SIM_GRAPH,
	SIM_NODE,
	SIM_EXEC,
	SIM_USER_OBJECT,
	SIM_KIND_COUNT
};

/* First member of whatever the program holds a handle of. The memory of
 * objects is never given back, so that a stale handle can be told. */
struct sim_object {
	uint32_t magic; /* kind, and whether alive */
	uint32_t id;    /* counts up for each kind; printed in reports */
	bool orphan;    /* went with its context */
	struct sim_object *next_free;
	struct sim_object *next; /* all that ever were, so that none looks leaked */
};

void *sim_object_new(enum sim_kind kind, size_t bytes);
void sim_object_delete(void *object);
/* The object if `handle` is a live one of this kind, else NULL. */
void *sim_object_check(const void *handle, enum sim_kind kind);
/* What to say of one that is none: whether its context took it along. */
CUresult sim_object_gone(const void *handle, enum sim_kind kind);

/* --- vector clocks ------------------------------------------------------------ */

/* at[lane]: the last operation of that lane that is ordered before. */
struct sim_vc {
	uint64_t *at;
	uint32_t count, capacity;
};

struct sim_epoch {
	uint64_t seq;
	uint32_t lane;
};

uint32_t sim_lane_new(void);
void sim_lane_delete(uint32_t lane);
uint64_t sim_lane_next(uint32_t lane); /* the number of a new operation */
void sim_vc_join(struct sim_vc *vc, const struct sim_vc *other);
void sim_vc_copy(struct sim_vc *vc, const struct sim_vc *other);
void sim_vc_set(struct sim_vc *vc, uint32_t lane, uint64_t seq);
void sim_vc_clear(struct sim_vc *vc);
void sim_vc_free(struct sim_vc *vc);
bool sim_vc_covers(const struct sim_vc *vc, struct sim_epoch epoch);

/* --- work and operations -------------------------------------------------------- */

enum sim_mode { SIM_READ, SIM_WRITE, SIM_ATOMIC };

/* `rows` rows of `bytes` bytes, `pitch` apart. */
struct sim_access {
	uint64_t addr, bytes, pitch, rows;
	enum sim_mode mode;
};

enum sim_work_kind {
	SIM_WORK_NOTHING, /* an order, nothing to do */
	SIM_WORK_KERNEL,
	SIM_WORK_COPY,
	SIM_WORK_SET,
	SIM_WORK_HOST,
	SIM_WORK_ALLOC, /* stream-ordered memory comes to life */
	SIM_WORK_FREE,
	SIM_WORK_GRAPH_FREE, /* the memory stays the graph's */
};

enum sim_kernel {
	SIM_KERNEL_FILL,
	SIM_KERNEL_CHECK,
	SIM_KERNEL_COPY,
	SIM_KERNEL_ADD,
	SIM_KERNEL_SPIN,
	SIM_KERNEL_FILL_SLOW,
	SIM_KERNEL_CHECK_SLOW,
	SIM_KERNEL_TRAP,
	SIM_KERNEL_COUNT
};

/* Something a device can do: of an operation, or of a graph's node. */
struct sim_work {
	enum sim_work_kind kind;
	enum sim_kernel kernel;
	uint64_t duration_ns;
	struct sim_access access[SIM_ACCESS_MAX];
	int accesses;
	/* Copies between devices; NULL: as all other work. */
	struct sim_ctx *by;    /* whose device does it, and whose fences cover it */
	struct sim_ctx *also;  /* does a part of it: its fences cover it as well */
	struct sim_ctx *waits; /* waits for it as for its own work, when it waits */
	union {
		struct {
			uint64_t arg[5];
		} launch;
		struct {
			uint64_t dst, src, bytes, rows, dst_pitch, src_pitch;
			void *staged; /* our copy of a pageable source, malloc'ed */
		} copy;
		struct {
			uint64_t dst, count, rows, pitch;
			uint32_t value, width;
		} set;
		struct {
			void (*fn)(void *data);
			void *data;
			CUstreamCallback callback;
			CUstream stream;
		} host;
		struct {
			uint64_t addr;
		} memory;
	};
};

struct sim_ctx;
struct sim_stream;
struct sim_hold;
struct sim_tags;

enum sim_op_state { SIM_OP_WAITING, SIM_OP_READY, SIM_OP_RUNNING, SIM_OP_DONE };

struct sim_op {
	struct sim_work work;
	struct sim_ctx *ctx;
	enum sim_op_state state;
	uint32_t refs;
	uint32_t pending; /* operations that it still waits for */
	uint32_t heap_at; /* index in the heap of ready operations */
	uint64_t ready_ns, finish_ns;
	uint64_t order;         /* submission number: breaks ties */
	uint64_t walk;          /* plain.c: the latest walk that came here */
	bool plain_waited;      /* plain.c: by a free of another context */
	bool pinned_waited;     /* by one of pinned memory */
	uint64_t fence;         /* context.c: the same as walk */
	struct sim_op **before; /* counted references, dropped when done */
	uint32_t befores;
	struct sim_op **after; /* not counted: they wait, so they live */
	uint32_t afters, afters_capacity;
	struct sim_hold *hold; /* of a graph launch's last operation */
	struct sim_tags *tags; /* what it must find in memory */
};

/* A growing list of counted references to operations not done yet. */
struct sim_ops {
	struct sim_op **at;
	uint32_t count, capacity;
};

void sim_ops_add(struct sim_ops *ops, struct sim_op *op); /* NULL, done: no-op */
void sim_ops_free(struct sim_ops *ops);

/* Makes an operation that waits for `before` (kept by the caller) and lets the
 * scheduler have it. Gives a reference. */
struct sim_op *sim_op_submit(struct sim_ctx *ctx, const struct sim_work *work,
			     const struct sim_ops *before);
struct sim_op *sim_op_get(struct sim_op *op); /* NULL stays NULL */
void sim_op_put(struct sim_op *op);
bool sim_op_done(const struct sim_op *op); /* NULL: yes */
void sim_op_wait(struct sim_op *op);
void sim_ops_wait(struct sim_ops *ops);

/* Lets the clock run as a driver call does; at the end of a call, for IDLE. */
void sim_schedule_tick(void);
void sim_schedule_advance(uint64_t ns);
void sim_schedule_drain(void);
void sim_schedule_set_speed(int64_t speed);
int64_t sim_schedule_speed(void);
void sim_schedule_seed(uint64_t seed);
uint64_t sim_schedule_clock(void);
uint64_t sim_schedule_order(void); /* the number of the next operation */
uint64_t sim_schedule_pending(void);

/* What keeps the user objects of an executable graph (user_object.c). */
void sim_hold_put(struct sim_hold *hold);

struct sim_thread;

/* Runs fn(data) on the driver's thread; `op`, if any, is done afterwards. */
void sim_host_post(void (*fn)(void *data), void *data, struct sim_op *op);
/* The end of a call: what it posted is waited for, a moment. */
void sim_host_wait_posted(struct sim_thread *thread);

/* Executes work; > 0: the sticky error that it caused. (work.c) */
CUresult sim_work_run(struct sim_ctx *ctx, const struct sim_work *work);
void sim_work_finish(struct sim_work *work); /* frees what it owns */
void sim_work_copy(struct sim_work *work, const struct sim_work *other);
const char *sim_work_name(const struct sim_work *work);

/* A memset of `rows` rows of `count` values. (set.c) */
void sim_set_work(struct sim_work *ret_work, uint64_t dst, uint64_t pitch,
		  uint32_t value, uint32_t width, uint64_t count, uint64_t rows);
/* Reads a launch's arguments; either may be NULL. (kernel.c) */
CUresult sim_kernel_work(CUfunction f, void **params, void **extra,
			 struct sim_work *ret_work);

/* --- hazards (hazard.c) ---------------------------------------------------------- */

/* What touches memory, for reports. */
struct sim_actor {
	const char *what;
	uint32_t stream; /* id; 0: the host */
	uint64_t seq;
};

/* An operation `epoch` with everything before it in `vc` touches memory. */
void sim_hazard_access(const struct sim_access *access, struct sim_epoch epoch,
		       const struct sim_vc *vc, const struct sim_actor *actor);
/* The host does, knowing what the host knows. */
void sim_hazard_host(uint64_t addr, uint64_t bytes, enum sim_mode mode,
		     const char *what);
/* Other memory is put behind the addresses, or none: what runs there must not notice.
 * Work that reaches the same memory at other addresses does not. */
void sim_hazard_mapping(uint64_t addr, uint64_t bytes, const char *what);
/* The range is allocated or freed: what was done there counts no more. */
void sim_hazard_reset(uint64_t addr, uint64_t bytes);
/* The same by the other means, data tags at execution (tags.c): what the work
 * must find where it touches memory, made at submission and looked at when it
 * runs. `tag` is the operation's own, > 0. */
struct sim_tags *sim_tags_submit(const struct sim_work *work, uint64_t tag);
void sim_tags_run(const struct sim_tags *tags, const struct sim_work *work,
		  uint64_t tag);
void sim_tags_free(struct sim_tags *tags); /* accepts NULL */
void sim_tags_host(uint64_t addr, uint64_t bytes, enum sim_mode mode);
void sim_tags_reset(uint64_t addr, uint64_t bytes);
/* One line to stderr (the first few), and into gcpsim_last_report. */
void sim_report(uint64_t *counter, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* --- memory (memory.c) ----------------------------------------------------------- */

enum sim_memory {
	SIM_MEMORY_DEVICE,
	SIM_MEMORY_ASYNC,
	SIM_MEMORY_MANAGED,
	SIM_MEMORY_PINNED,
	SIM_MEMORY_REGISTERED,
	SIM_MEMORY_IPC,
	SIM_MEMORY_RESERVED, /* an address range for cuMemMap */
	SIM_MEMORY_HIDDEN,   /* arrays: accounted, never addressed */
};

struct sim_alloc {
	uint64_t addr;     /* first byte; host memory: its host address */
	uint64_t bytes;    /* as requested */
	uint64_t span;     /* of addresses occupied */
	uint64_t physical; /* accounted on the device */
	enum sim_memory kind;
	int device;
	struct sim_ctx *ctx;
	unsigned flags;
	uint64_t buffer_id;
	bool touched;  /* may hold data in the memfd */
	bool dying;    /* a stream-ordered free is under way */
	bool of_graph; /* from an allocation node; goes with the graphs */
	bool unfreed;  /* the same: a launch has allocated it, and nothing freed it */
	bool sync_memops;
	uint32_t ipc_opens;
	uint32_t ipc_skip;  /* of an imported one: what it is about begins there */
	int ipc_pid;        /* of an imported one: whose it is */
	uint32_t ipc_place; /* of an exported one, in ipc.c's table */
	struct sim_physical **mapped; /* RESERVED: per 2 MiB */
	uint32_t *piece;              /* the same: which 2 MiB of `mapped` */
	uint32_t *open;               /* the same: bit per device with access */
	struct sim_alloc *prev, *next;
};

enum { SIM_CHUNK = 2 << 20 };

/* For each chunk of a range: the range goes on from `lo` in it, for `n` bytes. */
#define SIM_EACH_CHUNK(addr, bytes, lo, n)                                             \
	for (uint64_t lo, n;                                                           \
	     (bytes) > 0 &&                                                            \
	     (lo = (addr) % SIM_CHUNK,                                                 \
	     n = SIM_CHUNK - lo < (bytes) ? SIM_CHUNK - lo : (bytes), true);           \
	     (addr) += n, (bytes) -= n)

/* The memory of a device: which addresses are whose, and how much is used. (space.c) */
struct sim_space {
	uint64_t limit, used, peak; /* bytes of physical memory */
	_Atomic uint64_t *all;      /* used by all processes; NULL: by this one alone */
	uint64_t base, span;        /* addresses */
	struct sim_chunk {
		struct sim_alloc *alloc;   /* owner of all of it, or */
		struct sim_shared *shared; /* NULL, NULL: free */
	} * chunks;
	uint32_t chunk_count, low; /* no free chunk below `low` */
};

void sim_space_init(struct sim_space *space, uint64_t limit, uint64_t span);
/* Gives alloc->bytes a place, and physical memory as its kind needs it; only a place.
 * False: there is no room. */
bool sim_space_place(struct sim_space *space, struct sim_alloc *alloc);
bool sim_space_reserve(struct sim_space *space, struct sim_alloc *alloc);
void sim_space_remove(struct sim_space *space, struct sim_alloc *alloc);
uint64_t sim_space_used(const struct sim_space *space);
bool sim_space_account(struct sim_space *space, int64_t bytes);
struct sim_alloc *sim_space_find(const struct sim_space *space, uint64_t addr);

/* Memory of cuMemCreate, in a memfd of its own, behind which stands what another
 * process must know that gets it (vmm_share.c). */
struct sim_physical {
	struct sim_object object;
	int device, fd;
	uint64_t bytes;
	uint64_t number; /* of its first 2 MiB; no other memory ever has it */
	uint32_t maps;
	uint32_t handles; /* that the program has */
	uint32_t usage;   /* allocFlags.usage that it was made with */
	bool rdma;        /* the same: allocFlags.gpuDirectRDMACapable */
	bool host;        /* memory of the host, beside the device */
	bool shareable;   /* made with a type of handle for other processes */
	bool imported;    /* accounted in the process that made it */
};
bool sim_physical_label(const struct sim_physical *physical); /* false: no memory */
struct sim_physical *sim_physical_new(int device, int fd, uint64_t bytes);

int sim_memory_init(int device, uint64_t limit);
CUresult sim_memory_alloc(struct sim_ctx *ctx, uint64_t bytes, enum sim_memory kind,
			  struct sim_alloc **ret_alloc);
CUresult sim_memory_reserve(int device, uint64_t bytes, struct sim_alloc **ret_alloc);
/* Registers host memory. */
struct sim_alloc *sim_memory_host(struct sim_ctx *ctx, void *p, uint64_t bytes,
				  enum sim_memory kind, unsigned flags);
void sim_memory_free(struct sim_alloc *alloc);
void sim_memory_reset(uint64_t addr, uint64_t bytes);
/* The same byte of physical memory has the same name at all addresses where it is
 * mapped; 0: it has none. And the device that it is on. */
uint64_t sim_physical_name(const struct sim_alloc *alloc, uint64_t addr);
int sim_physical_device(const struct sim_alloc *alloc, uint64_t addr);
/* What is mapped there. NULL: it is not mapped memory. */
const struct sim_physical *sim_physical_at(const struct sim_alloc *alloc,
					   uint64_t addr);
/* What CUDA takes for one allocation at `addr` within `alloc`: of memory that is mapped
 * by hand what one piece of physical memory covers. False: nothing is there. */
bool sim_memory_piece(const struct sim_alloc *alloc, uint64_t addr, uint64_t *ret_base,
		      uint64_t *ret_bytes);
void sim_ipc_release(const struct sim_alloc *alloc); /* its handles are no good */
/* The allocation that holds `addr`, or NULL. */
struct sim_alloc *sim_memory_find(uint64_t addr);
bool sim_memory_is_device(uint64_t addr); /* within the devices' addresses */
struct sim_alloc *sim_memory_first(void);
/* Where the simulator itself reaches [addr, addr + bytes): NULL if that is not
 * wholly inside one living allocation. */
void *sim_memory_host_view(uint64_t addr, uint64_t bytes, bool writes);
/* The same for an operation of `ctx`, which needs peer access. */
void *sim_memory_device_view(struct sim_ctx *ctx, uint64_t addr, uint64_t bytes,
			     bool writes);
/* Memory that is mapped by hand and not, or not yet, open to any device. */
bool sim_memory_is_closed(uint64_t addr);
/* Whether synchronous operations on it return when they are done
 * (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS). */
bool sim_memory_synchronizes(uint64_t addr);
/* The same of another device, and not open to `device`. */
bool sim_memory_is_foreign(uint64_t addr, int device);
bool sim_memory_account(int device, int64_t bytes); /* false: does not fit */
uint64_t sim_memory_span(int device);               /* of addresses */
/* How much of a device's memory this process may have. */
uint64_t sim_memory_limit(int device);
void sim_memory_info(int device, uint64_t *ret_free, uint64_t *ret_total);
uint64_t sim_memory_live(int device, uint64_t *ret_count);
/* Puts other memory behind an address range; -1 as fd: the range's own. */
int sim_memory_map(uint64_t addr, uint64_t bytes, int fd, uint64_t offset);
int sim_memory_fd(int device, uint64_t addr, uint64_t *ret_offset);
CUmemoryPool sim_pool_default(int device); /* pool.c */

/* --- contexts, streams, events ---------------------------------------------------- */

struct sim_ctx {
	struct sim_object object;
	int device;
	unsigned flags;
	bool primary, active;
	uint32_t retains;
	uint32_t greens; /* of a primary one: green contexts, each keeps it active */
	CUresult error;  /* sticky */
	struct sim_ctx *parent;     /* of a green context: the primary one */
	struct sim_stream *streams; /* all alive, the legacy one included */
	struct sim_stream *legacy;
	struct sim_event *events;
	struct sim_op *barrier; /* later work waits for it */
	struct sim_vc barrier_vc;
	struct sim_ops gone; /* last operations of destroyed streams */
	struct sim_vc gone_vc;
	/* Copies between devices, in streams of other contexts: what its device does,
	 * and what it waits for. */
	struct sim_ops done_here, awaited;
	struct sim_vc done_here_vc, awaited_vc, gone_here_vc;
	uint32_t peers;  /* bit per device: access enabled */
	uint64_t waited; /* plain CUDA has waited for its work before this one */
	struct sim_ctx *next;
};

struct sim_capture;

/* A growing list of graph nodes. */
struct sim_nodes {
	struct sim_node **at;
	uint32_t count, capacity;
};

struct sim_stream {
	struct sim_object object;
	struct sim_ctx *ctx;
	unsigned flags;
	int priority;
	bool legacy, blocking;
	uint64_t owner; /* thread of a per-thread default stream, else 0 */
	uint32_t lane;
	struct sim_op *tail; /* the last operation, NULL if done */
	struct sim_vc vc;
	bool elsewhere; /* what it has last is not what the context's device does */
	struct sim_vc here_vc; /* elsewhere: the clock of what came before */
	struct sim_capture *capture;
	struct sim_nodes frontier; /* what the next captured node depends on */
	struct sim_stream *next;
};

/* Unanswered queries since something was done, or since a call of the program returned
 * (gcpsim_plain_returned): more of them are a loop that waits. */
struct sim_polls {
	uint32_t count;
	uint64_t returned; /* calls, at the latest query */
};

struct sim_event {
	struct sim_object object;
	struct sim_ctx *ctx;
	unsigned flags;
	bool recorded;
	struct sim_op *op; /* what it waits for; NULL: nothing any more */
	struct sim_vc vc;
	uint64_t done_ns;
	uint64_t capture_id; /* != 0: last recorded in this capture */
	struct sim_nodes captured;
	struct sim_polls polls;
	struct sim_event *prev, *next; /* of its context */
};

/* Every context that lives, green ones too. */
struct sim_ctx *sim_ctx_first(void);
struct sim_ctx *sim_ctx_new(int device, unsigned flags, struct sim_ctx *parent);
/* Waits for its work, then ends all that it holds. */
void sim_ctx_empty(struct sim_ctx *ctx);
struct sim_ctx *sim_primary_open(int device);  /* the active primary context */
struct sim_ctx *sim_primary_known(int device); /* or NULL */
/* Ends a primary context that is not retained any more. */
void sim_primary_release_gone(struct sim_ctx *ctx);
void sim_ctx_delete(struct sim_ctx *ctx);
bool sim_device_valid(int device);
/* The calling thread's context, checked: 201, 709 or its sticky error. */
CUresult sim_ctx_current(struct sim_ctx **ret_ctx);
CUresult sim_ctx_check(CUcontext handle, struct sim_ctx **ret_ctx);
struct sim_ctx *sim_ctx_memory(struct sim_ctx *ctx); /* the owner of its memory */
void sim_ctx_ops(struct sim_ctx *ctx, struct sim_ops *ops); /* all its work */
void sim_ctx_vc(struct sim_ctx *ctx, struct sim_vc *vc);
/* What a fence of it covers: what its device does. */
void sim_ctx_fence(struct sim_ctx *ctx, struct sim_ops *ops, struct sim_vc *vc);
/* Tells the other contexts of a copy between devices. */
void sim_copy_tell(const struct sim_work *work, struct sim_op *op,
		   const struct sim_vc *vc);
CUresult sim_ctx_wait(struct sim_ctx *ctx); /* the host, for all its work */

/* CUstream -> stream: 0, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD as well.
 * Checks the context's error state. */
CUresult sim_stream_get(CUstream handle, struct sim_stream **ret_stream);
/* The same where use of the legacy stream is a use by work: it must not meet
 * a capture (906). */
CUresult sim_stream_use(CUstream handle, struct sim_stream **ret_stream);
struct sim_stream *sim_stream_new(struct sim_ctx *ctx, unsigned flags, int priority);
void sim_stream_delete(struct sim_stream *stream);
/* What new work on the stream must wait for. */
void sim_stream_before(struct sim_stream *stream, struct sim_ops *ops,
		       struct sim_vc *vc);
/* Gives the stream work: into its capture, or to the device. *ret_op, if
 * wanted, is a reference, NULL when captured. */
CUresult sim_stream_submit(struct sim_stream *stream, const struct sim_work *work,
			   struct sim_op **ret_op);
void sim_stream_set_tail(struct sim_stream *stream, struct sim_op *op);
/* What the host waits for and learns when it waits for the stream. */
void sim_stream_pending(struct sim_stream *stream, struct sim_ops *ops,
			struct sim_vc *vc);
CUresult sim_stream_wait(struct sim_stream *stream); /* the host waits */
/* A thread ended: its default streams go. Takes the lock. */
void sim_stream_thread_gone(uint64_t thread);

void sim_event_detach_capture(struct sim_event *event);
void sim_event_delete(struct sim_event *event);
/* Makes the event stand for what `ops` and `vc` hold. */
void sim_event_set(struct sim_event *event, struct sim_ctx *ctx, struct sim_ops *ops,
		   const struct sim_vc *vc);
CUresult sim_ctx_record(struct sim_ctx *ctx, CUevent handle);
CUresult sim_ctx_order(struct sim_ctx *ctx, CUevent handle);

/* The twins: NULL means the thread's own stream. */
#define SIM_PTSZ(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

/* --- captures (capture.c) ------------------------------------------------- */

/* A call that CUDA holds for unsafe during captures: 900, and the captures in
 * question are lost, if the calling thread's mode forbids it. */
CUresult sim_capture_unsafe(void);
/* Something that cannot go together with any capture in `ctx`: 900. */
CUresult sim_capture_conflict(struct sim_ctx *ctx);
/* Use of the legacy stream of `ctx`: 906. */
CUresult sim_capture_implicit(struct sim_ctx *ctx, bool query);
CUresult sim_capture_work(struct sim_stream *stream, const struct sim_work *work);
CUresult sim_capture_record(struct sim_stream *stream, struct sim_event *event);
CUresult sim_capture_wait(struct sim_stream *stream, struct sim_event *event);
/* A call that is never possible on a capturing stream: 900, capture lost. */
CUresult sim_capture_refuse(struct sim_stream *stream);
void sim_capture_stream_gone(struct sim_stream *stream);
/* The host asks about an event recorded in a capture: 907, capture lost; 1 if
 * that capture is no more. */
CUresult sim_capture_event_used(struct sim_event *event);
/* An event node in the graph, for CU_EVENT_*_EXTERNAL. */
CUresult sim_capture_event_node(struct sim_stream *stream, struct sim_event *event,
				CUgraphNodeType type);
/* Stream-ordered memory in a capture: nodes that allocate and free. */
CUresult sim_capture_alloc(struct sim_stream *stream, uint64_t bytes,
			   CUdeviceptr *ret_addr);
CUresult sim_capture_free(struct sim_stream *stream, struct sim_alloc *alloc);

void sim_nodes_add(struct sim_nodes *nodes, struct sim_node *node);
void sim_nodes_clear(struct sim_nodes *nodes);

/* --- plain CUDA (plain.c) --------------------------------------------------- */

/* The host waits for the operation: whether plain CUDA would have waited for it, too.
 */
void sim_plain_wait(struct sim_op *op);
/* The same of all later work of the context, which waits for what its barrier already
 * holds it back behind anyway. */
void sim_plain_order(const struct sim_ctx *ctx, struct sim_op *op);
/* Later work of the stream comes after the operation, and so waits for what it does not
 * come after by itself. */
void sim_plain_follow(struct sim_stream *stream, struct sim_op *op);
/* One more of them: how many there are. */
uint32_t sim_polls_count(struct sim_polls *polls);

/* --- the process (core.c, control.c) -------------------------------------- */

struct sim_thread {
	struct sim_ctx *stack[SIM_CTX_DEPTH_MAX];
	int depth;
	CUstreamCaptureMode mode;
	uint64_t id;
	bool in_callback;
	bool per_thread; /* in a call whose default stream is the thread's */
	uint64_t posted; /* the latest job that it gave the driver's thread, or 0 */
	enum sim_fn fn;  /* its latest call */
	bool watched;    /* of the program, not of what is tested */
	uint64_t calls[SIM_FN_COUNT]; /* written by this thread alone */
	struct sim_thread *next;
};

struct sim_process {
	/* Set before the first entry point returns. */
	bool initialized, exited, forked;
	int devices, driver_version;
	bool no_vmm; /* GCPSIM_VMM=0 */
	bool quiet, staging;
	const char *report_path;
	bool failures_planned;
	/* Under the big lock. */
	struct sim_vc host;             /* what the host knows to be done */
	uint64_t host_limit;            /* bytes that may be pinned; 0: no limit */
	uint64_t numa_limit, numa_used; /* of the host, in handles; 0: there are none */
	bool handles_again;             /* GCPSIM_HANDLES=again */
	uint64_t hazards, disorders, faults, misuses, invalidated, user_objects;
	uint64_t new_waits;
	uint64_t new_looks; /* of these */
	uint64_t new_orders;
	uint32_t latest_node; /* its id */
};
extern struct sim_process sim;

struct sim_thread *sim_thread_self(void); /* no lock */
extern const char *const sim_fn_names[SIM_FN_COUNT];
extern const int sim_fn_since[SIM_FN_COUNT];

/* First thing in every entry point: counts the call, fails it if so planned.
 * `early`: allowed before cuInit. No lock. */
CUresult sim_enter(enum sim_fn fn, bool early);
CUresult sim_failure(enum sim_fn fn); /* control.c; no lock */
void sim_control_load(void);          /* reads the environment, once; no lock */
void sim_control_init(void);          /* at cuInit */

void sim_lock(void);
void sim_unlock(void);
extern pthread_mutex_t sim_big_lock;

static inline void sim_unlock_cleanup(const int *unused)
{
	(void)unused;
	sim_unlock();
}

/* Holds the lock until the function returns. */
#define SIM_HOLD                                                                       \
	__attribute__((cleanup(sim_unlock_cleanup), unused)) int held_ = (sim_lock(), 0)

#define SIM_ENTER_AS(fn, early)                                                        \
	do {                                                                           \
		CUresult enter_ = sim_enter(SIM_FN_##fn, early);                       \
		if (__builtin_expect(enter_ != CUDA_SUCCESS, 0))                       \
			return enter_;                                                 \
	} while (0)
#define SIM_ENTER(fn)       SIM_ENTER_AS(fn, false)
#define SIM_ENTER_EARLY(fn) SIM_ENTER_AS(fn, true)

/* In each entry point, when the lock is dropped, or when it fails as planned: calls
 * gcpsim_when_called's. */
extern _Atomic int sim_awaited; /* the function that does; -1: none */
void sim_called_then(void);

static inline void sim_called(const enum sim_fn *fn)
{
	if (__builtin_expect(atomic_load_explicit(&sim_awaited, memory_order_relaxed) ==
				 (int)*fn,
			     0))
		sim_called_then();
}

#define SIM_CALLED(fn)                                                                 \
	__attribute__((cleanup(sim_called), unused)) enum sim_fn called_ = SIM_FN_##fn

#define SIM_LOCKED(fn)                                                                 \
	SIM_ENTER(fn);                                                                 \
	SIM_CALLED(fn);                                                                \
	SIM_HOLD;                                                                      \
	sim_schedule_tick()

/* Defines what an entry point does: entries.h has its gate, which runs before, and its
 * parameters, which are named as in entries.list. */
#define SIM_ENTRY(symbol) SIM_ENTRY_##symbol
/* The same, of one that does no more than this call. */
#define SIM_FORWARD(symbol, call)                                                      \
	SIM_ENTRY(symbol)                                                              \
	{                                                                              \
		return call;                                                           \
	}

/* At the head of an entry point that destroys: calls gcpsim_when_destroyed's. */
void sim_destroyed(const int *unused);
#define SIM_DESTROYS __attribute__((cleanup(sim_destroyed), unused)) int destroys_ = 0

/* What calls without the lock look at. */
#define SIM_LOAD(field)         __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define SIM_STORE(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELAXED)

/* Returns from the entry point when something failed, or is not as it must be. */
#define SIM_FAIL_IF(code, ...)                                                         \
	do {                                                                           \
		if (__VA_ARGS__)                                                       \
			return CUDA_ERROR_##code;                                      \
	} while (0)
#define SIM_TRY(call)                                                                  \
	do {                                                                           \
		CUresult try_ = (call);                                                \
		if (try_ != CUDA_SUCCESS)                                              \
			return try_;                                                   \
	} while (0)

/* Declares what `check` finds, the calling thread's context, or the stream that a
 * handle is; or returns why there is none. */
#define SIM_GET(type, name, check, ...)                                                \
	struct type *name = NULL;                                                      \
	SIM_TRY(check(__VA_ARGS__, &name))
#define SIM_CURRENT(ctx)                                                               \
	struct sim_ctx *ctx = NULL;                                                    \
	SIM_TRY(sim_ctx_current(&ctx))
#define SIM_STREAM(stream, handle) SIM_GET(sim_stream, stream, sim_stream_use, handle)

/* Memory of the simulator itself: never NULL, aborts instead. */
void *sim_calloc(size_t bytes);
void *sim_grow(void *array, uint32_t *capacity, uint32_t need, size_t bytes);

#endif
