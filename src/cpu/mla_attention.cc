// Absorbed attention, a block of queries of one sequence at a time.
//
// For each page in order: its rows become a tile of float32 in the second-level cache; scores of
// all queries and heads of the block are one product with it, the weighted sums another. (Reading
// bf16 rows where they lie is slower: 16 sequences of 256 tokens take 5.4 ms instead of 4.4 ms of
// one core, because the products then wait for memory that a conversion streams.) A token's
// result depends on its own scores alone: the online softmax steps at absolute pages, and sums run
// in order of position, so that blocks may be cut anywhere.
#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "cpu/kernels.h"
#include "cpu/multiply.h"
#include "cpu/rows.h"

namespace quire::cpu {

namespace {

// Queries times heads of a block: their float32 sums and the page tile fit the second-level cache.
constexpr int64_t kQueriesAtOnce = 64;

// Consecutive tokens of one row, and some of their heads.
struct Block {
  Share tokens;
  Share heads;
  int64_t cost;  // rows times queries that are read
};

std::vector<Share> split_heads(int64_t n_heads, int parts) {
  std::vector<Share> out;
  for (int part = 0; part < parts; ++part) {
    const Share share = share_of(part, parts, n_heads);
    if (share.begin < share.end) out.push_back(share);
  }
  return out;
}

// The step as blocks. With few tokens the heads are divided too, so that every worker has some.
std::vector<Block> blocks_of(const ops::MlaAttention& args, int n_workers) {
  const int64_t n_tokens = args.out[0];
  const int64_t n_heads = args.out[1];
  const auto heads = split_heads(n_heads, n_tokens < 2 * n_workers ? n_workers : 1);
  const int64_t tokens_max = std::max<int64_t>(1, kQueriesAtOnce / n_heads);
  std::vector<Block> out;
  for (int64_t begin = 0; begin < n_tokens;) {
    int64_t end = begin + 1;
    while (end < n_tokens && end - begin < tokens_max &&
           args.tokens.row(end) == args.tokens.row(begin)) {
      ++end;
    }
    for (const Share& share : heads) {
      const int64_t rows = args.tokens.position(end - 1) + 1;
      out.push_back({{begin, end}, share, rows * (end - begin) * (share.end - share.begin)});
    }
    begin = end;
  }
  return out;
}

// The largest block first, each to the worker that has least: a fixed function of the step.
std::vector<std::vector<Block>> deal(std::vector<Block> blocks, int n_workers) {
  std::stable_sort(blocks.begin(), blocks.end(),
                   [](const Block& a, const Block& b) { return a.cost > b.cost; });
  std::vector<std::vector<Block>> out(static_cast<size_t>(n_workers));
  std::vector<int64_t> load(static_cast<size_t>(n_workers));
  for (const Block& block : blocks) {
    const auto least =
        static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    out[least].push_back(block);
    load[least] += block.cost;
  }
  return out;
}

// The work on one block. Rows of queries and of the tile are [latent, zeros, rope, zeros], each
// part padded.
class BlockAttention {
 public:
  BlockAttention(const ops::MlaAttention& args, const Block& block, Scratch& scratch);
  void run();

 private:
  // A group of queries that see the first `n_visible` rows of the page.
  struct Group {
    Share tokens;
    int64_t n_visible;
  };

  void load_queries();
  void load_page(int64_t page, int64_t n_rows);
  void load_row(const std::byte* block, int32_t slot, float* out) const;
  int64_t visible(int64_t token, int64_t page) const;
  void attend(const Group& group, int64_t page);
  void store();

  const ops::MlaAttention& args_;
  const Block& block_;
  const KvPageLayout& layout_;
  int64_t rank_;     // padded
  int64_t width_;    // padded latent and rope
  int64_t n_heads_;  // of the block
  int64_t n_queries_;
  float* tile_;             // [64, width]
  float* queries_;          // [n_queries, width]
  const float** rows_;      // [n_queries] of queries_
  float* scores_;           // [n_queries, 64]
  float* sums_;             // [n_queries, rank]
  float* shrink_;           // [n_queries]
  OnlineSoftmax* softmax_;  // [n_queries]
};

BlockAttention::BlockAttention(const ops::MlaAttention& args, const Block& block, Scratch& scratch)
    : args_(args),
      block_(block),
      layout_(*args.kv.layout),
      rank_(padded(layout_.kv_lora_rank)),
      width_(rank_ + padded(layout_.rope_dim)),
      n_heads_(block.heads.end - block.heads.begin),
      n_queries_((block.tokens.end - block.tokens.begin) * n_heads_),
      tile_(scratch.take<float>(kPageTokens * width_)),
      queries_(scratch.take<float>(n_queries_ * width_)),
      rows_(scratch.take<const float*>(n_queries_)),
      scores_(scratch.take<float>(n_queries_ * kPageTokens)),
      sums_(scratch.take<float>(n_queries_ * rank_)),
      shrink_(scratch.take<float>(n_queries_)),
      softmax_(scratch.take<OnlineSoftmax>(n_queries_)) {
  if (rank_ != layout_.kv_lora_rank || width_ != layout_.values()) {
    std::fill_n(tile_, kPageTokens * width_, 0.0F);
  }
}

void BlockAttention::load_queries() {
  int64_t query = 0;
  for (int64_t token = block_.tokens.begin; token < block_.tokens.end; ++token) {
    for (int64_t head = block_.heads.begin; head < block_.heads.end; ++head, ++query) {
      float* row = queries_ + query * width_;
      load_activation(args_.q_latent.row(token).row(head).data, layout_.kv_lora_rank,
                      Activation::bf16, row);
      load_activation(args_.q_rope.row(token).row(head).data, layout_.rope_dim, Activation::bf16,
                      row + rank_);
      rows_[query] = row;
      softmax_[query] = {.largest = -std::numeric_limits<float>::infinity(), .total = 0};
    }
  }
}

void BlockAttention::load_row(const std::byte* block, int32_t slot, float* out) const {
  const std::byte* row = block + layout_.row_offset(slot);
  switch (layout_.format) {
    case KvFormat::bf16: {
      const auto* values = reinterpret_cast<const Bf16*>(row);
      bf16_to_float(values, layout_.kv_lora_rank, out);
      bf16_to_float(values + layout_.kv_lora_rank, layout_.rope_dim, out + rank_);
      return;
    }
    case KvFormat::fp8_e4m3_584: {
      float scales[2];
      std::memcpy(scales, block + layout_.scale_offset(slot), sizeof(scales));
      fp8_to_float(reinterpret_cast<const Fp8E4m3*>(row), layout_.kv_lora_rank, scales[0], out);
      int8_to_float(reinterpret_cast<const int8_t*>(row + layout_.kv_lora_rank), layout_.rope_dim,
                    scales[1], out + rank_);
      return;
    }
  }
}

void BlockAttention::load_page(int64_t page, int64_t n_rows) {
  const int64_t physical = args_.kv.table(args_.tokens.row(block_.tokens.begin), page);
  CHECK(0 <= physical && physical < args_.kv.n_pages);
  const std::byte* block = args_.kv.pool + physical * layout_.page_bytes +
                           layout_.blocks[static_cast<size_t>(args_.layer)].offset;
  for (int32_t slot = 0; slot < n_rows; ++slot) load_row(block, slot, tile_ + slot * width_);
}

int64_t BlockAttention::visible(int64_t token, int64_t page) const {
  const int64_t rows = args_.tokens.position(token) + 1 - page * kPageTokens;
  return std::clamp<int64_t>(rows, 0, kPageTokens);
}

void BlockAttention::attend(const Group& group, int64_t page) {
  const int64_t first = (group.tokens.begin - block_.tokens.begin) * n_heads_;
  const int64_t n = (group.tokens.end - group.tokens.begin) * n_heads_;
  float* scores = scores_ + first * kPageTokens;
  dot_rows({.a = rows_ + first,
            .m = n,
            .b = tile_,
            .b_bf16 = nullptr,
            .b_stride = width_,
            .n = group.n_visible,
            .depth = width_,
            .out = scores,
            .out_stride = kPageTokens});
  for (int64_t i = 0; i < n; ++i) {
    shrink_[first + i] =
        softmax_page(scores + i * kPageTokens, group.n_visible, args_.scale, &softmax_[first + i]);
  }
  accumulate_rows({.a = scores,
                   .a_stride = kPageTokens,
                   .m = n,
                   .b = tile_,
                   .b_bf16 = nullptr,
                   .b_stride = width_,
                   .n = rank_,
                   .depth = group.n_visible,
                   .out = sums_ + first * rank_,
                   .out_stride = rank_,
                   .scale = page == 0 ? nullptr : shrink_ + first});
}

void BlockAttention::store() {
  int64_t query = 0;
  for (int64_t token = block_.tokens.begin; token < block_.tokens.end; ++token) {
    for (int64_t head = block_.heads.begin; head < block_.heads.end; ++head, ++query) {
      divide_row(sums_ + query * rank_, softmax_[query].total, layout_.kv_lora_rank,
                 args_.out.row(token).row(head).data);
    }
  }
}

void BlockAttention::run() {
  load_queries();
  const int64_t n_rows = args_.tokens.position(block_.tokens.end - 1) + 1;
  for (int64_t page = 0; page * kPageTokens < n_rows; ++page) {
    load_page(page, visible(block_.tokens.end - 1, page));
    // Neighbours that see as much of the page go together: all of them, but at its diagonal.
    for (int64_t begin = block_.tokens.begin; begin < block_.tokens.end;) {
      const int64_t n_visible = visible(begin, page);
      int64_t end = begin + 1;
      while (end < block_.tokens.end && visible(end, page) == n_visible) ++end;
      if (n_visible > 0) attend({{begin, end}, n_visible}, page);
      begin = end;
    }
  }
  store();
}

}  // namespace

void mla_attention(Workers& workers, const ops::MlaAttention& args) {
  std::vector<Block> blocks = blocks_of(args, workers.count());
  int64_t queries = 0;  // times rows
  for (const Block& block : blocks) queries += block.cost;
  const int n_workers = workers.count_for(queries * args.kv.layout->values());
  const auto shares = deal(std::move(blocks), n_workers);
  workers.each(n_workers, [&](int worker, Scratch& scratch) {
    for (const Block& block : shares[static_cast<size_t>(worker)]) {
      scratch.reset();
      BlockAttention(args, block, scratch).run();
    }
  });
}

}  // namespace quire::cpu
