/*
 * A core file of a process that is our fork (target.h): its memory and the registers of its threads.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef CORE_FILE_H
#define CORE_FILE_H

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/procfs.h>
#include <sys/stat.h>
#include <unistd.h>

struct core_file {
    const char *bytes;
    size_t size;
};

static struct core_file *open_core(const char *path)
{
    static struct core_file core;
    struct stat stat;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &stat))
        exit(2);
    core.size = (size_t)stat.st_size;
    core.bytes = mmap(NULL, core.size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (core.bytes == MAP_FAILED || memcmp(core.bytes, ELFMAG, SELFMAG))
        exit(2);
    return &core;
}

static const Elf64_Phdr *headers_of(const struct core_file *core, int *count)
{
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)core->bytes;
    *count = header->e_phnum;
    return (const Elf64_Phdr *)(core->bytes + header->e_phoff);
}

/* Code and constants are not in a core; being a fork, we have them mapped at the same place. */
static int read_our_file(const char *address, char *buffer, size_t size)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int found = 0;
    while (maps && !found && fgets(line, sizeof line, maps)) {
        unsigned long start, end, inode = 0;
        char flags[8];
        if (sscanf(line, "%lx-%lx %7s %*x %*x:%*x %lu", &start, &end, flags, &inode) == 4 && inode &&
            flags[0] == 'r' && flags[1] == '-' && (unsigned long)address >= start && (unsigned long)address + size <= end) {
            memcpy(buffer, address, size);
            found = 1;
        }
    }
    if (maps)
        fclose(maps);
    return found;
}

/* All or nothing. */
static int read_core(const struct core_file *core, const void *address, char *buffer, size_t size)
{
    int count;
    const Elf64_Phdr *headers = headers_of(core, &count);
    const char *at = address;
    while (size > 0) {
        size_t piece = 0;
        for (int i = 0; i < count && !piece; i++) {
            const Elf64_Phdr *segment = &headers[i];
            unsigned long offset = (unsigned long)at - segment->p_vaddr;
            if (segment->p_type != PT_LOAD || (unsigned long)at < segment->p_vaddr || offset >= segment->p_filesz)
                continue;
            piece = segment->p_filesz - offset < size ? segment->p_filesz - offset : size;
            memcpy(buffer, core->bytes + segment->p_offset + offset, piece);
        }
        if (!piece)
            return read_our_file(at, buffer, size);
        at += piece, buffer += piece, size -= piece;
    }
    return 1;
}

/* The general (NT_PRSTATUS) or floating-point (NT_FPREGSET) registers of a thread; the latter's note follows the former. */
static const void *registers_in_core(const struct core_file *core, pid_t lwp, int wanted)
{
    int count, is_thread = 0;
    const Elf64_Phdr *headers = headers_of(core, &count);
    for (int i = 0; i < count; i++) {
        const char *at = core->bytes + headers[i].p_offset, *end = at + headers[i].p_filesz;
        while (headers[i].p_type == PT_NOTE && at + sizeof(Elf64_Nhdr) < end) {
            const Elf64_Nhdr *note = (const Elf64_Nhdr *)at;
            const char *content = at + sizeof *note + (note->n_namesz + 3) / 4 * 4;
            if (note->n_type == NT_PRSTATUS) {
                const struct elf_prstatus *status = (const struct elf_prstatus *)content;
                is_thread = status->pr_pid == lwp;
                content = (const char *)&status->pr_reg;
            }
            if (is_thread && (int)note->n_type == wanted)
                return content;
            at = at + sizeof *note + (note->n_namesz + 3) / 4 * 4 + (note->n_descsz + 3) / 4 * 4;
        }
    }
    return NULL;
}

#endif
