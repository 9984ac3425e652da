// layout_asserts.h as C++17.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <elf.h> // before <proc_service.h>, which then declares the routines that have ELF types
#include <type_traits>

#define SAME(name, type) static_assert(std::is_same_v<name, type>, "type of " #name)
#define SAME_F(name, type) static_assert(std::is_same_v<decltype(name), type>, "type of " #name)

#include "layout_asserts.h"

static_assert(TD_SIGNO_MASK == nullptr, "TD_SIGNO_MASK is not a null pointer");
static_assert(std::is_standard_layout_v<td_thrinfo_t> && std::is_trivially_copyable_v<td_thrinfo_t>);
static_assert(std::is_standard_layout_v<td_syncinfo_t> && std::is_trivially_copyable_v<td_syncinfo_t>);
static_assert(std::is_standard_layout_v<td_syncstats_t> && std::is_trivially_copyable_v<td_syncstats_t>);

// The same header twice, and the members by their other names, in a C++ program.
#include <thread_db.h>

bool other_names(const td_thrinfo_t &ti, const td_syncinfo_t &si)
{
    return ti.ti_exitval == ti.ti_tls && si.si_is_wlock == si.si_is_wlocked &&
           si.si_state.sem_count == si.si_state.sema_count;
}

// The functions have C linkage: this object refers to td_init, not to a mangled name.
td_err_e (*const c_linkage)() = td_init;
