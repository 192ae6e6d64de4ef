/* Preloaded: the time of day is the machine's and as many seconds as the file says that
   TEST_CLOCK names. By system calls, as nothing of the C library's may come back to here. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
	char text[32] = "";
	const char *path = getenv("TEST_CLOCK");
	int failed = syscall(SYS_clock_gettime, clock, now);
	int file;

	if (failed || clock != CLOCK_REALTIME || !path)
		return failed;
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return 0;
	if (read(file, text, sizeof text - 1) > 0)
		now->tv_sec += atoll(text);
	close(file);
	return 0;
}
