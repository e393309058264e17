// Shapes of weights that every plan has to fit: Kimi K2's on one rank of eight and on one alone,
// and kimi-nano's. Test data.
#pragma once

#include <cstdint>

namespace quire::cuda {

struct ModelMatrix {
  int64_t n_out, n_in;
};

inline constexpr ModelMatrix kModelMatrices[] = {
    {2112, 7168},  {1536, 1536},  {7168, 1024}, {384, 7168},   {4608, 7168},  {7168, 2304},
    {20480, 7168}, {12288, 1536}, {7168, 8192}, {36864, 7168}, {7168, 18432}, {163840, 7168},
    {128, 256},    {256, 96},     {320, 256},   {16, 16}};

}  // namespace quire::cuda
