/* Makes a file system misbehave for one directory, for processes that are started with it in LD_PRELOAD.
 *
 * DISK_FAULTS names the directory. While a file of this name is in the directory DISK_FAULTS_CONTROL:
 *   hang   writes, truncations and syncs of files below DISK_FAULTS do not return,
 *   eio    syncs fail with EIO,
 *   crash  has a number in it: the process is killed as soon as so many syncs have been done since.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static int is_below(int fd) {
    const char *directory = getenv("DISK_FAULTS");
    char link[64], path[PATH_MAX];
    if (!directory) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strncmp(path, directory, strlen(directory)) == 0;
}

static int is_on(const char *fault) {
    const char *control = getenv("DISK_FAULTS_CONTROL");
    char path[PATH_MAX];
    if (!control) return 0;
    snprintf(path, sizeof path, "%s/%s", control, fault);
    return access(path, F_OK) == 0;
}

static void wait_while_hanging(int fd) {
    struct timespec pause = {0, 5000000};
    while (is_on("hang") && is_below(fd)) nanosleep(&pause, NULL);
}

#define REAL(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

static int fails(int fd) {
    if (!is_on("eio") || !is_below(fd)) return 0;
    errno = EIO;
    return 1;
}

/* What was synced is on disk, and nobody hears of it any more. */
static void crash_in_time(int fd) {
    static atomic_int done;
    const char *control = getenv("DISK_FAULTS_CONTROL");
    char path[PATH_MAX];
    int most = 0;
    if (!control || !is_on("crash") || !is_below(fd)) return;
    snprintf(path, sizeof path, "%s/crash", control);
    FILE *file = fopen(path, "r");
    if (!file) return;
    if (fscanf(file, "%d", &most) == 1 && atomic_fetch_add(&done, 1) + 1 >= most) raise(SIGKILL);
    fclose(file);
}

int fdatasync(int fd) {
    wait_while_hanging(fd);
    if (fails(fd)) return -1;
    int result = REAL(fdatasync)(fd);
    crash_in_time(fd);
    return result;
}

int fsync(int fd) {
    wait_while_hanging(fd);
    if (fails(fd)) return -1;
    int result = REAL(fsync)(fd);
    crash_in_time(fd);
    return result;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    wait_while_hanging(fd);
    return REAL(write)(fd, bytes, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
    wait_while_hanging(fd);
    return REAL(pwrite64)(fd, bytes, count, offset);
}

int ftruncate64(int fd, off64_t length) {
    wait_while_hanging(fd);
    return REAL(ftruncate64)(fd, length);
}
