/*
 * layout_list.h against the system's headers: compile without -I of threadglass' include directory.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <proc_service.h>
#include <thread_db.h>

#ifdef THREADGLASS_LIBC_DB
#error "these are threadglass' headers: compile without -I of its include directory"
#endif

#include "layout_list.h"
