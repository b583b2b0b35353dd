/* Moves the wall clock of a process by what the file $MOVED_CLOCK says: a 64-bit number of seconds, which may
   change at any time.  The monotonic clock stays.  What waits until a moment of the moved clock waits as long as it
   meant to. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t none = 0;
static volatile int64_t *moved = &none;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("MOVED_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *page = mmap(NULL, sizeof *moved, PROT_READ, MAP_SHARED, file, 0);
  if (page != MAP_FAILED) moved = page;
  close(file);
}

static int real(clockid_t clock, struct timespec *now) { return syscall(SYS_clock_gettime, clock, now); }

int clock_gettime(clockid_t clock, struct timespec *now) {
  int done = real(clock, now);
  if (done == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *moved;
  return done;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec found;
  clock_gettime(CLOCK_REALTIME, &found);
  now->tv_sec = found.tv_sec;
  now->tv_usec = found.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *into) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (into) *into = now.tv_sec;
  return now.tv_sec;
}

int timespec_get(struct timespec *now, int base) {
  return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, now) == 0 ? base : 0;
}

/* A moment nearer to the moved clock than to the real one was taken from it. */
static struct timespec as_meant(const struct timespec *until) {
  struct timespec now, meant = *until;
  real(CLOCK_REALTIME, &now);
  int64_t by = *moved, ahead = until->tv_sec - now.tv_sec;
  if (llabs(ahead - by) < llabs(ahead)) meant.tv_sec -= by;
  return meant;
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
  static int (*next)(sem_t *, const struct timespec *);
  if (!next) next = dlsym(RTLD_NEXT, "sem_timedwait");
  struct timespec meant = as_meant(until);
  return next(semaphore, &meant);
}

int pthread_cond_timedwait(pthread_cond_t *restrict changed, pthread_mutex_t *restrict held,
                           const struct timespec *restrict until) {
  static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  if (!next) next = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  struct timespec meant = as_meant(until);
  return next(changed, held, &meant);
}
