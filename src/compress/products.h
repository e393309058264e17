// Products of tall float32 matrices, c += a^T b and c -= a^T b: what second moments, their factor
// and carried errors are made of.
//
// Bits are the same on every machine: an element of c is one lane, its terms are added to it one
// after the other in order of k, and there are no fused multiply-adds.
#pragma once

#include <cstdint>

namespace quire {

// The columns of c come in whole steps of this.
inline constexpr int64_t kProductLanes = 16;

enum class ProductSign : uint8_t { plus, minus };
// upper: nobody reads what lies below the diagonal of c, and it may or may not be changed.
enum class ProductPart : uint8_t { whole, upper };

// c[i, j] = c[i, j] +- a[k, i] * b[k, j] for k = 0, 1, ..
struct Products {
  const float* a;                        // [n_terms, n_rows]
  const float* b;                        // [n_terms, n_columns]
  float* c;                              // [n_rows, n_columns]; shares no memory with a and b
  int64_t a_stride, b_stride, c_stride;  // of a row, in elements; of a and b maybe negative
  int64_t n_terms, n_rows;
  int64_t n_columns;  // a multiple of kProductLanes
  ProductSign sign = ProductSign::plus;
  ProductPart part = ProductPart::whole;
};

void add_products(const Products& args);

}  // namespace quire
