/* Records what processes do to the files below one directory, in one global order.
 *
 * Loaded by LD_PRELOAD into every process of a workload. CRASH_ROOT is the directory, CRASH_LOG the
 * file of records. An operation and its record are one step under a mutex that all processes share,
 * so that records stand in the order of the operations. A sync is recorded when it begins: what was
 * written before it is covered, and nobody can rely on it before it has returned. It is not carried
 * out, as the replay loses nothing by that.
 *
 * A record is a line of text, `kind id a b length path path`, then `length` bytes of data and a
 * newline. Paths are absolute and percent-encoded; `-` stands for none. `id` names an open file
 * over all processes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILES 65536
#define LONGEST (3 * PATH_MAX + 8)

typedef struct { pthread_mutex_t mutex; uint64_t next; int ready; } shared_t;

static shared_t *shared;
static int log_fd = -1;
static char root[PATH_MAX];
static size_t root_length;
static uint64_t opened[FILES]; /* id of the open file below the root, 0: not one of ours */

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static void start(void) {
    static int started;
    if (started) return;
    started = 1;
    const char *where = getenv("CRASH_ROOT"), *log = getenv("CRASH_LOG");
    if (!where || !log) return;
    snprintf(root, sizeof root, "%s", where);
    root_length = strlen(root);
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s.shared", log);
    int (*real_open)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    int fd = real_open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) { /* the first process makes it, before it starts any other */
        fd = real_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || ftruncate(fd, sizeof(shared_t))) return;
    }
    shared = mmap(NULL, sizeof(shared_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (shared == MAP_FAILED) { shared = NULL; return; }
    if (!shared->ready) {
        pthread_mutexattr_t kind;
        pthread_mutexattr_init(&kind);
        pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&shared->mutex, &kind);
        shared->next = 1;
        shared->ready = 1;
    }
    int fd2 = real_open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    log_fd = fcntl(fd2, F_DUPFD_CLOEXEC, 900); /* out of the way of programs that count on theirs */
    close(fd2);
}

__attribute__((constructor)) static void loaded(void) { start(); }

static int recording(void) { start(); return shared != NULL && log_fd >= 0; }

static void lock(void) {
    if (pthread_mutex_lock(&shared->mutex) == EOWNERDEAD) pthread_mutex_consistent(&shared->mutex);
}

static void unlock(void) { pthread_mutex_unlock(&shared->mutex); }

/* The absolute path if it lies below the root, else NULL. */
static const char *ours(int directory, const char *path, char *buffer) {
    if (!path) return NULL;
    if (path[0] == '/') {
        snprintf(buffer, PATH_MAX, "%s", path);
    } else {
        char base[PATH_MAX];
        if (directory == AT_FDCWD) {
            if (!getcwd(base, sizeof base)) return NULL;
        } else {
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
            ssize_t size = readlink(link, base, sizeof base - 1);
            if (size < 0) return NULL;
            base[size] = 0;
        }
        if (snprintf(buffer, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) return NULL;
    }
    if (strncmp(buffer, root, root_length) || (buffer[root_length] && buffer[root_length] != '/'))
        return NULL;
    return buffer;
}

static void encode(const char *path, char *into) {
    if (!path) { strcpy(into, "-"); return; }
    for (; *path; path++) {
        unsigned char one = (unsigned char)*path;
        if (one <= ' ' || one == '%' || one >= 127) into += sprintf(into, "%%%02x", one);
        else *into++ = (char)one;
    }
    *into = 0;
}

static void put(const char *kind, uint64_t id, long long a, long long b, const char *first,
                const char *second, const void *data, size_t size) {
    static char head[2 * LONGEST + 128], one[LONGEST], two[LONGEST]; /* under the mutex */
    encode(first, one);
    encode(second, two);
    int length = snprintf(head, sizeof head, "%s %llu %lld %lld %zu %s %s\n", kind,
                          (unsigned long long)id, a, b, size, one, two);
    struct iovec parts[3] = {{head, (size_t)length}, {(void *)data, size}, {"\n", 1}};
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    if (real(log_fd, parts, 3) != (ssize_t)(length + size + 1)) abort();
}

void crash_mark(const char *text) {
    if (!recording()) return;
    lock();
    put("mark", 0, 0, 0, text, NULL, NULL, 0);
    unlock();
}

/* --- opening and closing --------------------------------------------------------------------- */

static int open_recorded(int directory, const char *path, int flags, mode_t mode) {
    REAL(int, "openat", int, const char *, int, ...);
    char where[PATH_MAX];
    if (!recording() || !ours(directory, path, where)) {
        int fd = real(directory, path, flags, mode);
        if (fd >= 0 && fd < FILES) opened[fd] = 0;
        return fd;
    }
    struct stat before, after;
    lock();
    int there = fstatat(directory, path, &before, 0) == 0;
    int fd = real(directory, path, flags, mode);
    int error = errno;
    if (fd >= 0 && fd < FILES && !fstat(fd, &after)
            && (S_ISREG(after.st_mode) || S_ISDIR(after.st_mode)) && !(flags & O_PATH)) {
        opened[fd] = shared->next++;
        put("open", opened[fd], !there, there && (flags & O_TRUNC) != 0, where, NULL, NULL, 0);
    }
    unlock();
    errno = error;
    return fd;
}

#define MODE() mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { \
    va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *path, int flags, ...) { MODE() return open_recorded(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE() return open_recorded(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int at, const char *path, int flags, ...) { MODE() return open_recorded(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE() return open_recorded(at, path, flags | O_LARGEFILE, mode); }
int __open_2(const char *path, int flags) { return open_recorded(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_recorded(AT_FDCWD, path, flags | O_LARGEFILE, 0); }
int __openat_2(int at, const char *path, int flags) { return open_recorded(at, path, flags, 0); }
int __openat64_2(int at, const char *path, int flags) { return open_recorded(at, path, flags | O_LARGEFILE, 0); }
int creat(const char *path, mode_t mode) { return open_recorded(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

int close(int fd) {
    REAL(int, "close", int);
    if (fd == log_fd && log_fd >= 0) return 0; /* some close all that they have not opened */
    if (fd >= 0 && fd < FILES) opened[fd] = 0;
    return real(fd);
}

static int copied(int from, int to) {
    if (to >= 0 && to < FILES) opened[to] = from >= 0 && from < FILES ? opened[from] : 0;
    return to;
}

int dup(int fd) { REAL(int, "dup", int); return copied(fd, real(fd)); }
int dup2(int fd, int to) { REAL(int, "dup2", int, int); return copied(fd, real(fd, to)); }
int dup3(int fd, int to, int flags) { REAL(int, "dup3", int, int, int); return copied(fd, real(fd, to, flags)); }

/* --- content --------------------------------------------------------------------------------- */

static uint64_t id_of(int fd) {
    return fd >= 0 && fd < FILES && opened[fd] && recording() ? opened[fd] : 0;
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    uint64_t id = id_of(fd);
    if (!id) return real(fd, data, size);
    lock();
    ssize_t done = real(fd, data, size);
    int error = errno;
    if (done > 0) put("write", id, lseek(fd, 0, SEEK_CUR) - done, 0, NULL, NULL, data, (size_t)done);
    unlock();
    errno = error;
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    uint64_t id = id_of(fd);
    if (!id) return real(fd, data, size, at);
    lock();
    ssize_t done = real(fd, data, size, at);
    int error = errno;
    if (done > 0) put("write", id, at, 0, NULL, NULL, data, (size_t)done);
    unlock();
    errno = error;
    return done;
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return pwrite64(fd, data, size, at); }

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    if (!id_of(fd)) return real(fd, parts, count);
    ssize_t total = 0;
    for (int i = 0; i < count; i++) {
        ssize_t done = parts[i].iov_len ? write(fd, parts[i].iov_base, parts[i].iov_len) : 0;
        if (done < 0) return total ? total : done;
        total += done;
        if ((size_t)done < parts[i].iov_len) break;
    }
    return total;
}

/* What would write past this recorder is refused, so that nothing is missed in silence. */
#define REFUSED(type, name, fd, ...) \
    type name(__VA_ARGS__) { if (id_of(fd)) { errno = ENOSYS; return -1; }

REFUSED(ssize_t, pwritev, fd, int fd, const struct iovec *parts, int count, off_t at)
    REAL(ssize_t, "pwritev", int, const struct iovec *, int, off_t); return real(fd, parts, count, at); }
REFUSED(ssize_t, sendfile, to, int to, int from, off_t *at, size_t size)
    REAL(ssize_t, "sendfile", int, int, off_t *, size_t); return real(to, from, at, size); }
REFUSED(ssize_t, sendfile64, to, int to, int from, off64_t *at, size_t size)
    REAL(ssize_t, "sendfile64", int, int, off64_t *, size_t); return real(to, from, at, size); }
REFUSED(ssize_t, copy_file_range, to, int from, off64_t *a, int to, off64_t *b, size_t size, unsigned flags)
    REAL(ssize_t, "copy_file_range", int, off64_t *, int, off64_t *, size_t, unsigned);
    return real(from, a, to, b, size, flags); }
int fallocate(int fd, int mode, off_t at, off_t size) {
    REAL(int, "fallocate", int, int, off_t, off_t);
    if (id_of(fd)) { errno = EOPNOTSUPP; return -1; }
    return real(fd, mode, at, size);
}
int posix_fallocate(int fd, off_t at, off_t size) {
    REAL(int, "posix_fallocate", int, off_t, off_t);
    return id_of(fd) ? EOPNOTSUPP : real(fd, at, size);
}

int ftruncate64(int fd, off64_t size) {
    REAL(int, "ftruncate64", int, off64_t);
    uint64_t id = id_of(fd);
    if (!id) return real(fd, size);
    lock();
    int done = real(fd, size), error = errno;
    if (!done) put("truncate", id, size, 0, NULL, NULL, NULL, 0);
    unlock();
    errno = error;
    return done;
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

static int sync_recorded(int fd, const char *name) {
    uint64_t id = id_of(fd);
    if (id) {
        lock();
        put("sync", id, 0, 0, NULL, NULL, NULL, 0);
        unlock();
        return 0;
    }
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return real(fd);
}
int fsync(int fd) { return sync_recorded(fd, "fsync"); }
int fdatasync(int fd) { return sync_recorded(fd, "fdatasync"); }

/* --- names ----------------------------------------------------------------------------------- */

static int named(const char *kind, int at, const char *path, int to, const char *other,
                 int (*change)(int, const char *, int, const char *, int), int flags) {
    char first[PATH_MAX], second[PATH_MAX];
    const char *one = NULL, *two = NULL;
    if (recording()) {
        one = ours(at, path, first);
        two = other ? ours(to, other, second) : NULL;
    }
    if (!one && !two) return change(at, path, to, other, flags);
    lock();
    int done = change(at, path, to, other, flags), error = errno;
    if (!done) put(kind, 0, 0, 0, one, two, NULL, 0);
    unlock();
    errno = error;
    return done;
}

#define CHANGE(name) static int name(int at, const char *path, int to, const char *other, int flags)
CHANGE(do_rename) { REAL(int, "renameat2", int, const char *, int, const char *, unsigned); return real(at, path, to, other, (unsigned)flags); }
CHANGE(do_link) { REAL(int, "linkat", int, const char *, int, const char *, int); return real(at, path, to, other, flags); }
CHANGE(do_unlink) { (void)to; (void)other; REAL(int, "unlinkat", int, const char *, int); return real(at, path, flags); }
CHANGE(do_mkdir) { (void)to; (void)other; REAL(int, "mkdirat", int, const char *, mode_t); return real(at, path, (mode_t)flags); }

int rename(const char *a, const char *b) { return named("rename", AT_FDCWD, a, AT_FDCWD, b, do_rename, 0); }
int renameat(int x, const char *a, int y, const char *b) { return named("rename", x, a, y, b, do_rename, 0); }
int renameat2(int x, const char *a, int y, const char *b, unsigned flags) { return named("rename", x, a, y, b, do_rename, (int)flags); }
int link(const char *a, const char *b) { return named("link", AT_FDCWD, a, AT_FDCWD, b, do_link, 0); }
int linkat(int x, const char *a, int y, const char *b, int flags) { return named("link", x, a, y, b, do_link, flags); }
int unlink(const char *a) { return named("unlink", AT_FDCWD, a, 0, NULL, do_unlink, 0); }
int rmdir(const char *a) { return named("unlink", AT_FDCWD, a, 0, NULL, do_unlink, AT_REMOVEDIR); }
int unlinkat(int x, const char *a, int flags) { return named("unlink", x, a, 0, NULL, do_unlink, flags); }
int remove(const char *a) {
    struct stat found;
    if (lstat(a, &found)) return -1;
    return S_ISDIR(found.st_mode) ? rmdir(a) : unlink(a);
}
int mkdir(const char *a, mode_t mode) { return named("mkdir", AT_FDCWD, a, 0, NULL, do_mkdir, (int)mode); }
int mkdirat(int x, const char *a, mode_t mode) { return named("mkdir", x, a, 0, NULL, do_mkdir, (int)mode); }
