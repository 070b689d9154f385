/* SPDX-License-Identifier: MIT */
/*
 * treap.h - ordered sets whose items hold the links: binary search trees with a
 * parent pointer in each node, balanced as treaps.
 *
 * A node's priority is a hash of its address, and no child's priority is higher than
 * its parent's. So the tree has the shape of a search tree that was filled in random
 * order: a way down has about 1.4 log2(n) nodes. The priority is not stored, and a
 * comparison of two reads no memory.
 *
 * Nothing is allocated. The caller holds the lock of the set.
 */
#ifndef GCP_POOL_TREAP_H
#define GCP_POOL_TREAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Links of an item. All zero: the item is in no set. */
struct gcp_treap_node {
	struct gcp_treap_node *child[2]; /* of lower and of higher order */
	struct gcp_treap_node *parent;
};

/* All zero: empty. */
struct gcp_treap {
	struct gcp_treap_node *root;
};

typedef bool gcp_treap_before(const struct gcp_treap_node *a,
			      const struct gcp_treap_node *b);
/* Called for nodes whose subtrees have changed, children first. Returns false if what
 * is above need not be updated for it. */
typedef bool gcp_treap_update(struct gcp_treap_node *node);

#define GCP_TREAP_FUNCTION static inline __attribute__((unused))
/* So that the functions of a set are called directly. */
#define GCP_TREAP_INLINE static inline __attribute__((always_inline))

GCP_TREAP_INLINE uint64_t gcp_treap_priority(const struct gcp_treap_node *node)
{
	uint64_t hash = (uintptr_t)node * UINT64_C(0x9e3779b97f4a7c15);

	return (hash ^ hash >> 32) * UINT64_C(0x9e3779b97f4a7c15);
}

/* --- insert and remove ------------------------------------------------------------ */

GCP_TREAP_INLINE void gcp_treap_link(struct gcp_treap_node **link,
				     struct gcp_treap_node *node,
				     struct gcp_treap_node *parent)
{
	*link = node;
	if (node)
		node->parent = parent;
}

/* Updates each node below `above`, from `node` on, and then those that it matters to.
 */
GCP_TREAP_INLINE void gcp_treap_update_up(struct gcp_treap_node *node,
					  const struct gcp_treap_node *above,
					  gcp_treap_update *update)
{
	for (; update && node != above; node = node->parent)
		(void)update(node);
	while (update && node && update(node))
		node = node->parent;
}

/* The node goes above the first one of lower priority. What was there is split into the
 * node's two subtrees:
 *
 *        40                   40
 *       /                    /
 *      20        + 25:      25          20 and 30 lie on the way to 25's place: each
 *     /  \                 /  \         goes to its side, with the child that is not
 *   10    30             20    30       on the way
 *        /  \           /  \     \
 *      22    35       10    22    35
 */
GCP_TREAP_INLINE void gcp_treap_insert(struct gcp_treap *treap,
				       struct gcp_treap_node *node,
				       gcp_treap_before *before,
				       gcp_treap_update *update)
{
	struct gcp_treap_node **link = &treap->root, *parent = NULL, *split;
	struct gcp_treap_node **ends[2] = {&node->child[0], &node->child[1]};
	struct gcp_treap_node *lowest[2] = {node, node};
	uint64_t priority = gcp_treap_priority(node);

	while (*link && gcp_treap_priority(*link) >= priority) {
		parent = *link;
		link = &parent->child[!before(node, parent)];
	}
	split = *link;
	gcp_treap_link(link, node, parent);
	while (split) {
		bool side = before(node, split);

		gcp_treap_link(ends[side], split, lowest[side]);
		lowest[side] = split;
		ends[side] = &split->child[!side];
		split = *ends[side];
	}
	*ends[0] = *ends[1] = NULL;
	for (; update && lowest[0] != node; lowest[0] = lowest[0]->parent)
		(void)update(lowest[0]);
	gcp_treap_update_up(lowest[1], parent, update);
}

/* The node's two subtrees are merged in its place: the higher priority goes above. */
GCP_TREAP_INLINE void gcp_treap_remove(struct gcp_treap *treap,
				       struct gcp_treap_node *node,
				       gcp_treap_update *update)
{
	struct gcp_treap_node *parent = node->parent, **link = &treap->root;
	const struct gcp_treap_node *above = parent;
	struct gcp_treap_node *part[2] = {node->child[0], node->child[1]};

	if (parent)
		link = &parent->child[parent->child[1] == node];
	while (part[0] && part[1]) {
		bool side = gcp_treap_priority(part[1]) > gcp_treap_priority(part[0]);

		gcp_treap_link(link, part[side], parent);
		parent = part[side];
		link = &parent->child[!side];
		part[side] = *link;
	}
	gcp_treap_link(link, part[0] ? part[0] : part[1], parent);
	gcp_treap_update_up(parent, above, update);
}

/* --- look up ------------------------------------------------------------------ */

/* side 1: the first node not before `key`; 0: the last one before it. Or NULL. */
GCP_TREAP_INLINE struct gcp_treap_node *
gcp_treap_beside(const struct gcp_treap *treap, const struct gcp_treap_node *key,
		 bool side, gcp_treap_before *before)
{
	struct gcp_treap_node *node = treap->root, *found = NULL;

	while (node) {
		bool lower = before(node, key);

		if (lower != side)
			found = node;
		node = node->child[lower];
	}
	return found;
}

static inline struct gcp_treap_node *gcp_treap_end(struct gcp_treap_node *node,
						   bool side)
{
	while (node && node->child[side])
		node = node->child[side];
	return node;
}

/* side 1: the next node; 0: the previous one. Or NULL. */
static inline struct gcp_treap_node *gcp_treap_step(const struct gcp_treap_node *node,
						    bool side)
{
	if (node->child[side])
		return gcp_treap_end(node->child[side], !side);
	while (node->parent && node == node->parent->child[side])
		node = node->parent;
	return node->parent;
}

/* --- sets of one type ------------------------------------------------------------- */

/* Defines, for items of `struct type` whose links are `member`, in the order of
 * bool before(const struct type *a, const struct type *b):
 *
 *   name_insert(treap, item)   name_remove(treap, item)
 *   name_first(treap)
 *   name_next(item)
 *   name_from(treap, key)      the first item not before `key`
 *   name_below(treap, key)     the last item before `key`
 *   name_of(node)              the item of a node
 *
 * Where there is no such item the result is NULL. `update` may be NULL. */
#define GCP_TREAP(name, type, member, before, update)                                  \
	GCP_TREAP_FUNCTION struct type *name##_of(const struct gcp_treap_node *node)   \
	{                                                                              \
		return node ? (struct type *)((char *)(uintptr_t)node -                \
					      offsetof(struct type, member))           \
			    : NULL;                                                    \
	}                                                                              \
	GCP_TREAP_INLINE bool name##_before(const struct gcp_treap_node *a,            \
					    const struct gcp_treap_node *b)            \
	{                                                                              \
		return before(name##_of(a), name##_of(b));                             \
	}                                                                              \
	GCP_TREAP_FUNCTION void name##_insert(struct gcp_treap *treap,                 \
					      struct type *item)                       \
	{                                                                              \
		gcp_treap_insert(treap, &item->member, name##_before, update);         \
	}                                                                              \
	GCP_TREAP_FUNCTION void name##_remove(struct gcp_treap *treap,                 \
					      struct type *item)                       \
	{                                                                              \
		gcp_treap_remove(treap, &item->member, update);                        \
	}                                                                              \
	GCP_TREAP_FUNCTION struct type *name##_first(const struct gcp_treap *treap)    \
	{                                                                              \
		return name##_of(gcp_treap_end(treap->root, 0));                       \
	}                                                                              \
	GCP_TREAP_FUNCTION struct type *name##_next(const struct type *item)           \
	{                                                                              \
		return name##_of(gcp_treap_step(&item->member, 1));                    \
	}                                                                              \
	GCP_TREAP_FUNCTION struct type *name##_from(const struct gcp_treap *treap,     \
						    const struct type *key)            \
	{                                                                              \
		return name##_of(                                                      \
		    gcp_treap_beside(treap, &key->member, 1, name##_before));          \
	}                                                                              \
	GCP_TREAP_FUNCTION struct type *name##_below(const struct gcp_treap *treap,    \
						     const struct type *key)           \
	{                                                                              \
		return name##_of(                                                      \
		    gcp_treap_beside(treap, &key->member, 0, name##_before));          \
	}

#endif
