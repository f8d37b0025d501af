// Vectors of floats, and sums whose bits depend on no machine.
//
// A product of one row of a state with K numbers always sums in the same order: QUAD partial sums, number j into
// partial j % QUAD by a fused multiply-add, then (0 + 2) + (1 + 3). A vector holds the partial sums of WIDTH / QUAD
// rows, however wide the machine is. Few partial sums: adding them up is work that each row and token repeats.
#pragma once

#include <utility>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace flashstate {

#if defined(__AVX512F__)
constexpr int WIDTH = 16;
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int WIDTH = 8;
#else
constexpr int WIDTH = 4;
#endif
constexpr int QUAD = 4;

typedef float Vec __attribute__((vector_size(WIDTH * 4)));

// Aligned to the vector.
static inline Vec load(const float* from) { return *reinterpret_cast<const Vec*>(from); }
static inline void store(float* to, Vec x) { *reinterpret_cast<Vec*>(to) = x; }

// QUAD numbers, repeated through the vector.
static inline Vec repeat_quad(const float* from) {
#if defined(__AVX512F__)
  return (Vec)_mm512_broadcast_f32x4(_mm_load_ps(from));
#elif defined(__AVX2__) && defined(__FMA__)
  return (Vec)_mm256_broadcast_ps(reinterpret_cast<const __m128*>(from));
#else
  return load(from);
#endif
}

// x * y + z, rounded once. By name, because the compiler is told never to fuse of its own accord.
static inline Vec fma(Vec x, Vec y, Vec z) {
#if defined(__AVX512F__)
  return (Vec)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)z);
#elif defined(__AVX2__) && defined(__FMA__)
  return (Vec)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)z);
#elif defined(__aarch64__)
  return (Vec)vfmaq_f32((float32x4_t)z, (float32x4_t)x, (float32x4_t)y);
#else
  for (int i = 0; i < WIDTH; ++i) z[i] = __builtin_fmaf(x[i], y[i], z[i]);
  return z;
#endif
}

// Lanes of (x, y), as if one vector of twice the width.
#if defined(__clang__)
#define FLASHSTATE_LANES(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
typedef int Lanes __attribute__((vector_size(WIDTH * 4)));
#define FLASHSTATE_LANES(x, y, ...) __builtin_shuffle(x, y, Lanes{__VA_ARGS__})
#endif

typedef std::make_integer_sequence<int, WIDTH> EachLane;

// Adds each odd block of BLOCK lanes of (x, y) to the even block before it.
template <int BLOCK, int... I>
static inline Vec add_blocks(Vec x, Vec y, std::integer_sequence<int, I...>) {
  return FLASHSTATE_LANES(x, y, (2 * (I / BLOCK) * BLOCK + I % BLOCK)...) +
         FLASHSTATE_LANES(x, y, (2 * (I / BLOCK) * BLOCK + I % BLOCK + BLOCK)...);
}

// The sums of the WIDTH quads in QUAD vectors, in their order.
static inline Vec sum_quads(const Vec* quads) {
  return add_blocks<1>(add_blocks<2>(quads[0], quads[1], EachLane()), add_blocks<2>(quads[2], quads[3], EachLane()),
                       EachLane());
}

// Spreads WIDTH numbers over the quads of QUAD vectors: the inverse of sum_quads.
template <int PART, int... I>
static inline Vec spread_part(Vec x, std::integer_sequence<int, I...>) {
  return FLASHSTATE_LANES(x, x, (PART * (WIDTH / QUAD) + I / QUAD)...);
}
static inline void spread_quads(Vec x, Vec* quads) {
  quads[0] = spread_part<0>(x, EachLane());
  quads[1] = spread_part<1>(x, EachLane());
  quads[2] = spread_part<2>(x, EachLane());
  quads[3] = spread_part<3>(x, EachLane());
}

// A product of two rows of 16 n numbers; in its own order, which is fixed too.
static inline float dot(const float* x, const float* y, int size) {
  constexpr int LANES = 16;
  float sum[LANES] = {};
  for (int j = 0; j < size; j += LANES)
    for (int i = 0; i < LANES; ++i) sum[i] = __builtin_fmaf(x[j + i], y[j + i], sum[i]);
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) sum[i] += sum[i + half];
  return sum[0];
}

}  // namespace flashstate
