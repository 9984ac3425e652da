/*
 * layout_asserts.h as C11.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <elf.h> /* before <proc_service.h>, which then declares the routines that have ELF types */
#include <stdalign.h>

#define SAME(name, type) static_assert(__builtin_types_compatible_p(name, type), "type of " #name)
#define SAME_F(name, type)                                                                                   \
    static_assert(__builtin_types_compatible_p(__typeof__(name), type), "type of " #name)

#include "layout_asserts.h"

/* The same header twice, and the members by their other names, in a C program. */
#include <thread_db.h>

int other_names(const td_thrinfo_t *ti, const td_syncinfo_t *si);

int other_names(const td_thrinfo_t *ti, const td_syncinfo_t *si)
{
    return ti->ti_exitval == (const void *)ti->ti_tls && si->si_is_wlock == si->si_is_wlocked &&
           si->si_state.sem_count == si->si_state.sema_count;
}
