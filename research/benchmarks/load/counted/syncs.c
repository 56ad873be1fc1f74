/* Counts every call that waits for the disk, in a page that the reader shares: LD_PRELOAD, COUNT_SYNCS=<file>.

   SQLite, Python, Rust and PostgreSQL all reach these through the C library, so nothing of theirs is changed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t *count;

__attribute__((constructor)) static void prepare(void) {
    const char *path = getenv("COUNT_SYNCS");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) count = page;
}

static int counted(const char *name, int file) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    if (count) __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
    return real(file);
}

int fsync(int file) { return counted("fsync", file); }
int fdatasync(int file) { return counted("fdatasync", file); }
int syncfs(int file) { return counted("syncfs", file); }

int msync(void *start, size_t length, int flags) {
    int (*real)(void *, size_t, int) = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "msync");
    if (count && (flags & MS_SYNC)) __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
    return real(start, length, flags);
}
