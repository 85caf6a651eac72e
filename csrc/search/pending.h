/* Functions of rooms that are not finished yet are looked up weakly, so that the extension loads without them. */
#ifndef NS_SEARCH_PENDING_H
#define NS_SEARCH_PENDING_H
#include "schedule/schedule.h"

#pragma weak dag_rewrite_layout
#endif
