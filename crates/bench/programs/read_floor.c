/* The floor: the least work that shows every thread of a process from outside.
 *
 *   read_floor PID
 *
 * Lists /proc/PID/task and reads the stat, status and syscall files of each thread, one open, one
 * read and one close per file, relative to the opened task directory. Parses nothing, keeps nothing, prints
 * only how much was read. One thread and no library beyond libc: what a tool takes beyond this is
 * the tool's own. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const FILES[] = { "/stat", "/status", "/syscall" };

int main(int argc, char **argv)
{
    char path[64];
    if (argc != 2 || strlen(argv[1]) > 10) {
        fprintf(stderr, "usage: read_floor PID\n");
        return 2;
    }
    snprintf(path, sizeof path, "/proc/%s/task", argv[1]);
    DIR *tasks = opendir(path);
    if (tasks == NULL) {
        perror(path);
        return 2;
    }

    static char buffer[8192];
    long threads = 0, unread = 0, bytes = 0;
    struct dirent *entry;
    while ((entry = readdir(tasks)) != NULL) {
        size_t length = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || length > 16)
            continue;
        threads++;
        memcpy(path, entry->d_name, length);
        for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++) {
            strcpy(path + length, FILES[i]);
            int fd = openat(dirfd(tasks), path, O_RDONLY | O_CLOEXEC);
            ssize_t got = fd < 0 ? -1 : read(fd, buffer, sizeof buffer);
            if (got < 0)
                unread++;
            else
                bytes += got;
            if (fd >= 0)
                close(fd);
        }
    }
    closedir(tasks);
    printf("%ld threads, %ld bytes, %ld files unread\n", threads, bytes, unread);
    return 0;
}
