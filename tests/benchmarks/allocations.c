/* The bytes that a process has allocated: now, and the most since a mark. Preloaded. */

#include <errno.h>
#include <malloc.h>
#include <stddef.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static long live, peak;

static void *taken(void *p) {
    if (!p) return p;
    long now = __atomic_add_fetch(&live, (long)malloc_usable_size(p), __ATOMIC_SEQ_CST);
    long most = __atomic_load_n(&peak, __ATOMIC_SEQ_CST);
    while (now > most && !__atomic_compare_exchange_n(&peak, &most, now, 0, __ATOMIC_SEQ_CST,
                                                      __ATOMIC_SEQ_CST)) {
    }
    return p;
}

static void given_back(long size) { __atomic_sub_fetch(&live, size, __ATOMIC_SEQ_CST); }

void *malloc(size_t size) { return taken(__libc_malloc(size)); }

void *calloc(size_t n, size_t size) { return taken(__libc_calloc(n, size)); }

void *memalign(size_t alignment, size_t size) { return taken(__libc_memalign(alignment, size)); }

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **result, size_t alignment, size_t size) {
    void *p = memalign(alignment, size);
    if (!p) return ENOMEM;
    *result = p;
    return 0;
}

void *realloc(void *old, size_t size) {
    long before = old ? (long)malloc_usable_size(old) : 0;
    void *p = __libc_realloc(old, size);
    /* Without memory for the new block the old one stays. */
    if (p || !size) given_back(before);
    return taken(p);
}

void free(void *p) {
    if (!p) return;
    given_back((long)malloc_usable_size(p));
    __libc_free(p);
}

long allocations_since_mark(void) { return __atomic_load_n(&peak, __ATOMIC_SEQ_CST); }

/* What is allocated now; the most begins anew. */
long mark_allocations(void) {
    long now = __atomic_load_n(&live, __ATOMIC_SEQ_CST);
    __atomic_store_n(&peak, now, __ATOMIC_SEQ_CST);
    return now;
}
