/* product: the matrix product of model N. OpenBLAS is opened at run time where it is installed; otherwise plain C. */
#ifndef NS_PRODUCT_H
#define NS_PRODUCT_H
#include <stdbool.h>

#ifdef MLP_DOUBLE /* a test compares gradients with differences */
typedef double Real;
#else
typedef float Real;
#endif

/* c (m x n) += a (m x k) b (k x n), row-major; ta, tb: that factor is stored transposed. Any thread may call it. */
void product_add(bool ta, bool tb, int m, int n, int k, const Real *a, const Real *b, Real *c);
/* Threads that products of this process use from now on; plain C always uses one. */
void product_threads(int n);
/* File name of the BLAS in use; NULL: plain C. */
const char *product_library(void);
#endif
