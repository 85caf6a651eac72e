/* What the files of te share among themselves. */
#ifndef NS_TE_INT_H
#define NS_TE_INT_H
#include "te/te.h"

double te_count_flop(IrCtx *c, int n_ops, TeOp *const *ops); /* flop.c; -1 if unknown */
#endif
