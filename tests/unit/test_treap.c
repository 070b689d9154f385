/* SPDX-License-Identifier: MIT */
/*
 * test_treap.c - the ordered set of pool/base/treap.h against a sorted array.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../pool/base/treap.h"
#include "cases.h"

#define TEST(name) CASE(name, NULL, NULL)

enum { ITEMS = 2000, KEYS = 500, STEPS = 40000 };

struct item {
	uint64_t key, serial;
	uint64_t sum; /* of the keys in its subtree */
	struct gcp_treap_node node;
};

static bool item_before(const struct item *a, const struct item *b)
{
	return a->key != b->key ? a->key < b->key : a->serial < b->serial;
}

static gcp_treap_update sum_update;
GCP_TREAP(items, item, node, item_before, sum_update)

static uint64_t sum_of(const struct gcp_treap_node *node)
{
	return node ? items_of(node)->sum : 0;
}

static bool sum_update(struct gcp_treap_node *node)
{
	struct item *item = items_of(node);
	uint64_t before = item->sum;

	item->sum = item->key + sum_of(node->child[0]) + sum_of(node->child[1]);
	return item->sum != before;
}

/* Those in the set, in order. */
static struct item *model[ITEMS];
static size_t count;

/* The number of items of the model that are before `key`. */
static size_t model_rank(const struct item *key)
{
	size_t at = 0;

	while (at < count && item_before(model[at], key))
		at++;
	return at;
}

static void model_insert(struct item *item)
{
	size_t at = model_rank(item);

	memmove(&model[at + 1], &model[at], (count++ - at) * sizeof(model[0]));
	model[at] = item;
}

static void model_remove(const struct item *item)
{
	size_t at = model_rank(item);

	memmove(&model[at], &model[at + 1], (--count - at) * sizeof(model[0]));
}

static void compare_with_model(const struct gcp_treap *treap)
{
	struct item *item = items_first(treap), *last = NULL;
	uint64_t sum = 0;

	assert_true(items_is_valid(treap));
	for (size_t i = 0; i < count; i++, item = items_next(item)) {
		assert_ptr_equal(item, model[i]);
		assert_ptr_equal(items_previous(item), last);
		sum += item->key;
		last = item;
	}
	assert_null(item);
	assert_int_equal(sum_of(treap->root), sum);
}

static void look_up(const struct gcp_treap *treap, const struct item *key)
{
	size_t at = model_rank(key);

	assert_ptr_equal(items_from(treap, key), at < count ? model[at] : NULL);
	assert_ptr_equal(items_below(treap, key), at > 0 ? model[at - 1] : NULL);
}

TEST(random_operations_match_a_sorted_array)
{
	static struct item items[ITEMS];
	static bool in[ITEMS];
	struct gcp_treap treap = {0};

	srandom(1);
	for (size_t i = 0; i < ITEMS; i++)
		items[i] = (struct item){.key = (uint64_t)random() % KEYS, .serial = i};
	for (int step = 0; step < STEPS; step++) {
		/* Now more go in than out, and now fewer. */
		size_t at = (size_t)random() % (step / 4000 % 2 ? ITEMS : ITEMS / 8);
		struct item *item = &items[at],
			    key = {.key = (uint64_t)random() % KEYS};

		if (in[at]) {
			items_remove(&treap, item);
			model_remove(item);
		} else {
			items_insert(&treap, item);
			model_insert(item);
		}
		in[at] = !in[at];
		look_up(&treap, &key);
		if (step % 100 == 0)
			compare_with_model(&treap);
	}
}

static size_t depth(const struct gcp_treap_node *node)
{
	size_t below[2];

	if (!node)
		return 0;
	below[0] = depth(node->child[0]);
	below[1] = depth(node->child[1]);
	return 1 + (below[0] > below[1] ? below[0] : below[1]);
}

/* Whatever the distance of the items: descriptors lie side by side. */
TEST(rising_keys_give_a_shallow_tree)
{
	static char memory[1 << 22];

	for (size_t stride = sizeof(struct item); stride <= 1024; stride += 8) {
		struct gcp_treap treap = {0};

		for (size_t i = 0; i < 4000; i++) {
			struct item *item = (void *)&memory[i * stride];

			*item = (struct item){.key = i};
			items_insert(&treap, item);
		}
		/* A random one of 4,000 has about 27 levels. */
		assert_in_range(depth(treap.root), 12, 48);
	}
}

TEST(damage_is_found)
{
	struct item items[8] = {0};
	struct gcp_treap treap = {0};
	struct item *root;

	assert_true(items_is_valid(&treap));
	for (size_t i = 0; i < 8; i++) {
		items[i].key = i;
		items_insert(&treap, &items[i]);
	}
	assert_true(items_is_valid(&treap));
	root = items_of(treap.root);
	root->key += 100;
	assert_true(items_is_valid(&treap) == !items_next(root));
	root->key -= 100;
	for (size_t i = 0; i < 8; i++) {
		struct gcp_treap_node *parent = items[i].node.parent;

		if (!parent)
			continue;
		items[i].node.parent = &items[i].node;
		assert_false(gcp_treap_is_valid(parent, items_before));
		items[i].node.parent = parent;
	}
}
