// The recurrence of flashstate.kernels.base, token by token, in place on a pool of states.
//
// There is no tile grid: what a token does to a state depends on the state and the token alone. So an exported state,
// a warm resume and every split of a sequence have the bits of the uninterrupted run. Rows of a state (value channels)
// never meet, so neither threads nor the size of a block of rows show in the bits.
//
// With a = exp(log_decay), k, q of one token and the state S before it:
//   d = beta * (v - S (a k)),  o = S (a q) + d (k . q),  S <- S a + d k^T
// Both products read the state before the token, so that the update of one token and the products of the next share
// one pass over the state.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "lanes.h"

namespace flashstate {

constexpr int MAX_KEYS = 256;
constexpr int MAX_ROWS = 128;
constexpr int MIN_ROWS = 32;          // UNIT divides it
constexpr int BLOCK_FLOATS = 8192;    // 32 KiB: what the pass goes over stays in the first-level cache
constexpr int PREFETCH = 3;           // tokens ahead
constexpr int UNIT = WIDTH == 16 ? 32 : WIDTH;  // rows whose partial sums fit in the registers

enum Family : int32_t { KDA, GDN, MAMBA2 };
enum Fault : int32_t { NONE, BAD_BOUNDS, BAD_OFFSET, BAD_SLOT, BAD_EXPORT_SLOT, SHARED_SLOT };

// GOMP_parallel of the OpenMP that torch has loaded: its own pool of threads, and no second one beside it.
typedef void (*Parallel)(void (*)(void*), void*, unsigned, unsigned);

}  // namespace flashstate

// Mirrored by flashstate.kernels.cpu.library.Call. Pointers first, then 64, then 32 bits: no padding.
extern "C" struct FlashstateCall {
  const void *q, *k, *v;      // [T, Hk, K] twice, [T, H, V]
  const float *log_decay;     // [T, H, K] for KDA, else [T, H]
  const float *beta;          // [T, H]
  void *output;               // [T, H, V]
  float *pool;                // [slots, H, V, K], slots `slot_stride` floats apart
  const int32_t *cu_seqlens;  // [N + 1]
  const int32_t *slots;       // [N]
  const uint8_t *has_initial; // [N], or null: all have
  const int32_t *export_offsets, *export_slots;  // [N], or null
  flashstate::Parallel parallel;  // or null: one thread
  int64_t slot_stride, pool_slots, tokens;
  int32_t sequences, heads, key_heads, values, keys, family, bfloat16, threads;
  int32_t fault_sequence;     // out: where the fault is
  float scale;
};

namespace flashstate {

typedef FlashstateCall Call;

struct BFloat16 {
  uint16_t bits;
};

static inline float widen(float x) { return x; }
static inline float widen(BFloat16 x) {
  uint32_t bits = uint32_t(x.bits) << 16;
  float wide;
  std::memcpy(&wide, &bits, 4);
  return wide;
}

static inline void narrow(float x, float* to) { *to = x; }
static inline void narrow(float x, BFloat16* to) {  // to nearest, ties to even, as torch does
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  to->bits = uint16_t(x == x ? rounded : 0x7fc0);
}

// exp for x <= 0 (Cephes), without branches, so that it vectorises: the same bits in every lane and on every machine.
static inline float exp_of_negative(float x) {
  constexpr float ROUNDER = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer
  float bounded = x < -87.f ? -87.f : x;
  float shifted = __builtin_fmaf(bounded, 1.44269504088896341f, ROUNDER);
  float n = shifted - ROUNDER;
  float r = __builtin_fmaf(n, 2.12194440e-4f, __builtin_fmaf(n, -0.693359375f, bounded));
  float p = 1.9875691500e-4f;
  p = __builtin_fmaf(p, r, 1.3981999507e-3f);
  p = __builtin_fmaf(p, r, 8.3334519073e-3f);
  p = __builtin_fmaf(p, r, 4.1665795894e-2f);
  p = __builtin_fmaf(p, r, 1.6666665459e-1f);
  p = __builtin_fmaf(p, r, 5.0000001201e-1f);
  p = __builtin_fmaf(p, r * r, r + 1.f);
  int32_t exponent;
  std::memcpy(&exponent, &shifted, 4);
  exponent = int32_t(uint32_t(exponent + 127) << 23);  // the low bits of `shifted` are n
  float power;
  std::memcpy(&power, &exponent, 4);
  return x < -87.f ? 0.f : p * power;
}

// What the pass needs of one token and head.
struct Token {
  alignas(64) float decay[MAX_KEYS];
  alignas(64) float key[MAX_KEYS];
  alignas(64) float decayed_key[MAX_KEYS];
  alignas(64) float decayed_query[MAX_KEYS];
  float key_query;
};

template <class T>
static void prepare(const Call& call, int64_t t, int head, int key_head, Token& token) {
  const int keys = call.keys;
  const int64_t row = (t * call.key_heads + key_head) * keys, gate = t * call.heads + head;
  const T* __restrict k = static_cast<const T*>(call.k) + row;
  const T* __restrict q = static_cast<const T*>(call.q) + row;
  float* __restrict decay = token.decay;
  float* __restrict key = token.key;
  float* __restrict decayed_key = token.decayed_key;
  float* __restrict decayed_query = token.decayed_query;
  alignas(64) float query[MAX_KEYS];
  if (call.family == KDA) {
    const float* __restrict log_decay = call.log_decay + gate * keys;
    for (int j = 0; j < keys; ++j) decay[j] = exp_of_negative(log_decay[j]);
  } else {
    const float all = exp_of_negative(call.log_decay[gate]);
    for (int j = 0; j < keys; ++j) decay[j] = all;
  }
  const float scale = call.scale;
  for (int j = 0; j < keys; ++j) {
    key[j] = widen(k[j]);
    query[j] = widen(q[j]) * scale;
    decayed_key[j] = decay[j] * key[j];
    decayed_query[j] = decay[j] * query[j];
  }
  token.key_query = dot(key, query, keys);
}

// The rows of a head lie a page apart from token to token, where the processor's own prefetcher gives up. Inlined by
// force: GCC drops calls of a function that does nothing but prefetch.
__attribute__((always_inline)) static inline void prefetch(const void* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(from) + i);
}

template <class T>
__attribute__((always_inline)) static inline void prefetch_token(const Call& call, int64_t t, int head, int key_head,
                                                                 int row, int rows) {
  const int64_t key_row = (t * call.key_heads + key_head) * call.keys;
  const int64_t gate = t * call.heads + head, value_row = gate * call.values + row;
  prefetch(static_cast<const T*>(call.k) + key_row, call.keys * sizeof(T));
  prefetch(static_cast<const T*>(call.q) + key_row, call.keys * sizeof(T));
  prefetch(static_cast<const T*>(call.v) + value_row, rows * sizeof(T));
  prefetch(static_cast<const T*>(call.output) + value_row, rows * sizeof(T));
  if (call.family == KDA) prefetch(call.log_decay + gate * call.keys, call.keys * 4);
}

struct Products {
  alignas(64) float with_key[MAX_ROWS];
  alignas(64) float with_query[MAX_ROWS];
};

// A block of rows in the order of the pass: UNIT rows together, of each first QUAD keys, then the next QUAD, and so on.
struct Block {
  alignas(64) float state[BLOCK_FLOATS];
};

// Calls move(place in the block, place in the pool) for each QUAD of a block, cache line after cache line of the block.
template <class Move>
static inline void each_quad(int rows, int keys, Move move) {
  constexpr int TOGETHER = 4;
  for (int row = 0; row < rows; row += TOGETHER) {
    const int first = row / UNIT * UNIT * keys + row % UNIT * QUAD;
    for (int j = 0; j < keys; j += QUAD)
      for (int r = 0; r < TOGETHER; ++r) move(first + j * UNIT + r * QUAD, (row + r) * keys + j);
  }
}

static void gather(const float* __restrict pool, int rows, int keys, Block& __restrict block) {
  if (rows % UNIT) std::memset(block.state, 0, sizeof block.state);  // rows that only fill the last unit
  each_quad(rows, keys, [&](int to, int from) { std::memcpy(block.state + to, pool + from, QUAD * 4); });
}

static void scatter(const Block& __restrict block, int rows, int keys, float* __restrict pool) {
  each_quad(rows, keys, [&](int from, int to) { std::memcpy(pool + to, block.state + from, QUAD * 4); });
}

// One pass over a block of rows: UPDATE by `done`, whose deltas are given, then the products with `next` if READ.
template <bool UPDATE, bool READ>
static void pass(Block& block, int rows, int keys, const Token& done, const float* delta, const Token& next,
                 Products& products) {
  constexpr int VECTORS = UNIT * QUAD / WIDTH;
  float* at = block.state;
  for (int row = 0; row < rows; row += UNIT) {
    Vec with_key[VECTORS] = {}, with_query[VECTORS] = {}, deltas[VECTORS];
    if (UPDATE)
      for (int i = 0; i < VECTORS; i += QUAD) spread_quads(load(delta + row + i / QUAD * WIDTH), deltas + i);
    for (int j = 0; j < keys; j += QUAD, at += UNIT * QUAD) {
      const Vec decay = repeat_quad(done.decay + j), key = repeat_quad(done.key + j);
      const Vec decayed_key = repeat_quad(next.decayed_key + j);
      const Vec decayed_query = repeat_quad(next.decayed_query + j);
      for (int i = 0; i < VECTORS; ++i) {
        Vec s = load(at + i * WIDTH);
        if (UPDATE) {
          s = fma(s, decay, deltas[i] * key);
          store(at + i * WIDTH, s);
        }
        if (READ) {
          with_key[i] = fma(s, decayed_key, with_key[i]);
          with_query[i] = fma(s, decayed_query, with_query[i]);
        }
      }
    }
    if (READ)
      for (int i = 0; i < VECTORS; i += QUAD) {
        store(products.with_key + row + i / QUAD * WIDTH, sum_quads(with_key + i));
        store(products.with_query + row + i / QUAD * WIDTH, sum_quads(with_query + i));
      }
  }
}

template <class T>
static void emit(const Call& call, int64_t t, int head, int row, int rows, const Token& token,
                 const Products& products, float* __restrict delta) {
  const int64_t at = (t * call.heads + head) * call.values + row;
  const T* __restrict v = static_cast<const T*>(call.v) + at;
  T* __restrict output = static_cast<T*>(call.output) + at;
  const float beta = call.beta[t * call.heads + head], key_query = token.key_query;
  const float* __restrict with_key = products.with_key;
  const float* __restrict with_query = products.with_query;
  const bool delta_rule = call.family != MAMBA2;
  for (int i = 0; i < rows; ++i) {
    const float value = widen(v[i]);
    delta[i] = (delta_rule ? value - with_key[i] : value) * beta;
    narrow(__builtin_fmaf(delta[i], key_query, with_query[i]), output + i);
  }
}

// Some rows of one head's state of one sequence.
struct Part {
  int head, key_head, row, rows;
  int64_t begin, end, offset;   // tokens, and after how many to export
  float *state, *checkpoint;    // its first row in the pool; the checkpoint null without an export
  bool has_initial;
};

static Part part_of(const Call& call, int sequence, int head, int row, int rows) {
  const int64_t within = (int64_t(head) * call.values + row) * call.keys;
  const int64_t begin = call.cu_seqlens[sequence], end = call.cu_seqlens[sequence + 1];
  Part part{head, head / (call.heads / call.key_heads), row, rows, begin, end, 0, nullptr, nullptr, true};
  if (begin == end) return part;  // its slot may name none
  part.state = call.pool + call.slots[sequence] * call.slot_stride + within;
  part.has_initial = !call.has_initial || call.has_initial[sequence];
  part.offset = call.export_offsets ? call.export_offsets[sequence] : 0;
  if (part.offset) part.checkpoint = call.pool + call.export_slots[sequence] * call.slot_stride + within;
  return part;
}

// One token: a decode step. To bring a state into the pass's order and back would cost more than the step itself, so
// the update, which has no sums, is done where the state lies. The bits are those of run_tokens.
template <class T>
static void run_token(const Call& call, const Part& part) {
  const int keys = call.keys;
  Block block;
  Token token;
  Products products;
  alignas(64) float delta[MAX_ROWS];
  if (!part.has_initial) std::memset(part.state, 0, int64_t(part.rows) * keys * 4);
  prepare<T>(call, part.begin, part.head, part.key_head, token);
  for (int first = 0; first < part.rows; first += UNIT) {
    const int rows = std::min(UNIT, part.rows - first);
    float* state = part.state + int64_t(first) * keys;
    gather(state, rows, keys, block);
    pass<false, true>(block, rows, keys, token, delta, token, products);
    emit<T>(call, part.begin, part.head, part.row + first, rows, token, products, delta);
    for (int r = 0; r < rows; ++r) {
      float* s = state + int64_t(r) * keys;
      for (int j = 0; j < keys; ++j) s[j] = __builtin_fmaf(s[j], token.decay[j], delta[r] * token.key[j]);
    }
  }
  if (part.checkpoint) std::memcpy(part.checkpoint, part.state, int64_t(part.rows) * keys * 4);
}

template <class T>
static void run_tokens(const Call& call, const Part& part) {
  const int keys = call.keys, rows = part.rows;
  Block block;
  Token tokens[2];
  Products products;
  alignas(64) float delta[MAX_ROWS] = {};
  if (part.has_initial) gather(part.state, rows, keys, block);
  else std::memset(block.state, 0, sizeof block.state);
  Token& first = tokens[part.begin & 1];
  prepare<T>(call, part.begin, part.head, part.key_head, first);
  pass<false, true>(block, rows, keys, first, delta, first, products);
  for (int64_t t = part.begin; t < part.end; ++t) {
    const Token& token = tokens[t & 1];
    Token& next = tokens[(t + 1) & 1];
    if (t + PREFETCH < part.end) prefetch_token<T>(call, t + PREFETCH, part.head, part.key_head, part.row, rows);
    emit<T>(call, t, part.head, part.row, rows, token, products, delta);
    if (t + 1 < part.end) {
      prepare<T>(call, t + 1, part.head, part.key_head, next);
      pass<true, true>(block, rows, keys, token, delta, next, products);
    } else {
      pass<true, false>(block, rows, keys, token, delta, token, products);
    }
    if (t + 1 - part.begin == part.offset) scatter(block, rows, keys, part.checkpoint);
  }
  scatter(block, rows, keys, part.state);
}

template <class T>
static void run(const Call& call, const Part& part) {
  if (part.end - part.begin > 1) run_tokens<T>(call, part);
  else if (part.end > part.begin) run_token<T>(call, part);
}

struct Work {
  const Call& call;
  int rows, blocks;  // rows a block, blocks a head
  int64_t items;
  std::atomic<int64_t> taken{0};
};

static void work(void* data) {
  Work& work = *static_cast<Work*>(data);
  const Call& call = work.call;
  for (int64_t item; (item = work.taken.fetch_add(1, std::memory_order_relaxed)) < work.items;) {
    const int row = int(item % work.blocks) * work.rows, head = int(item / work.blocks % call.heads);
    const int sequence = int(item / work.blocks / call.heads), rows = std::min(work.rows, call.values - row);
    const Part part = part_of(call, sequence, head, row, rows);
    if (call.bfloat16) run<BFloat16>(call, part);
    else run<float>(call, part);
  }
}

static Fault check(Call& call) {
  int64_t before = 0;
  std::vector<int32_t> written;
  for (int n = 0; n < call.sequences; ++n) {
    const int64_t begin = call.cu_seqlens[n], end = call.cu_seqlens[n + 1];
    const int64_t offset = call.export_offsets ? call.export_offsets[n] : 0;
    call.fault_sequence = n;
    if (begin != before || end < begin || end > call.tokens) return BAD_BOUNDS;
    if (offset < 0 || offset > end - begin) return BAD_OFFSET;
    before = end;
    if (begin == end) continue;
    if (call.slots[n] < 0 || call.slots[n] >= call.pool_slots) return BAD_SLOT;
    written.push_back(call.slots[n]);
    if (offset == 0) continue;
    if (call.export_slots[n] < 0 || call.export_slots[n] >= call.pool_slots) return BAD_EXPORT_SLOT;
    written.push_back(call.export_slots[n]);
  }
  if (before != call.tokens) return BAD_BOUNDS;
  std::sort(written.begin(), written.end());
  const auto twice = std::adjacent_find(written.begin(), written.end());
  if (twice == written.end()) return NONE;
  call.fault_sequence = *twice;  // the slot: no single sequence is at fault
  return SHARED_SLOT;
}

}  // namespace flashstate

extern "C" int32_t flashstate_chunk_forward(FlashstateCall* given) {
  using namespace flashstate;
  Call& call = *given;
  const Fault fault = check(call);
  if (fault != NONE) return fault;
  // Smaller blocks where there are too few for the threads. Rows never meet, so the bits are the same.
  int rows = std::max(MIN_ROWS, BLOCK_FLOATS / call.keys / MIN_ROWS * MIN_ROWS);
  rows = std::min(rows, std::min(call.values, MAX_ROWS));
  const int64_t states = int64_t(call.sequences) * call.heads;
  while (rows > MIN_ROWS && states * ((call.values + rows - 1) / rows) < call.threads)
    rows = std::max(MIN_ROWS, rows / 2 / MIN_ROWS * MIN_ROWS);
  const int blocks = (call.values + rows - 1) / rows;
  Work all{call, rows, blocks, states * blocks};
  const int64_t threads = std::min<int64_t>(call.threads, all.items);
  if (threads > 1 && call.parallel) call.parallel(work, &all, unsigned(threads), 0);
  else work(&all);
  return NONE;
}
