#include "weights/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/temp_folder.h"
#include "weights/memory_backend.h"
#include "weights/table.h"

namespace quire {
namespace {

using testing::HasSubstr;

struct FakeTensor {
  Dtype dtype = Dtype::bf16;
  std::vector<int64_t> shape;
  std::string bytes;
};

// Value i of tensor `salt` is (i + salt) mod 17 - 8: exact in every format.
float fake_value(size_t i, size_t salt) { return static_cast<float>((i + salt) % 17) - 8; }

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

FakeTensor fake_bf16(std::vector<int64_t> shape, size_t salt) {
  size_t n = 1;
  for (const int64_t extent : shape) n *= static_cast<size_t>(extent);
  std::vector<Bf16> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = to_bf16(fake_value(i, salt));
  return {Dtype::bf16, std::move(shape), bytes_of(values)};
}

// One dense layer and one mixture of two experts.
ModelShape small_shape() {
  return {.vocab_size = 10,
          .hidden_size = 32,
          .n_layers = 2,
          .n_dense_layers = 1,
          .n_heads = 2,
          .q_lora_rank = 6,
          .kv_lora_rank = 160,
          .nope_dim = 3,
          .rope_dim = 4,
          .v_dim = 5,
          .dense_inner = 12,
          .expert_inner = 64,
          .n_experts = 2,
          .top_k = 1,
          .n_shared_experts = 1};
}

class Loading : public testing::Test {
 protected:
  void SetUp() override { make_tensors(); }

  // Every tensor that the table wants, in BF16.
  void make_tensors() {
    tensors_.clear();
    for (const WantedTensor& wanted : wanted_tensors(shape_, source_.naming)) {
      std::vector<int64_t> shape{wanted.n_out};
      if (wanted.n_in > 0) shape.push_back(wanted.n_in);
      const bool is_module = wanted.storage == Storage::matrix ||
                             wanted.storage == Storage::bf16_matrix ||
                             wanted.storage == Storage::kv_b;
      tensors_[wanted.source + (is_module ? ".weight" : "")] =
          fake_bf16(std::move(shape), tensors_.size());
    }
  }

  // `shift` spaces after the header move the data off its alignment.
  void write(size_t shift) {
    std::string header = "{";
    std::string data;
    for (const auto& [name, tensor] : tensors_) {
      header += (data.empty() ? "\"" : ",\"") + name + R"(":{"dtype":")" +
                std::string(quire::name(tensor.dtype)) + R"(","shape":[)";
      for (size_t i = 0; i < tensor.shape.size(); ++i) {
        header += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
      }
      header += "],\"data_offsets\":[" + std::to_string(data.size()) + "," +
                std::to_string(data.size() + tensor.bytes.size()) + "]}";
      data += tensor.bytes;
    }
    header += "}";
    header.resize(static_cast<size_t>(round_up(static_cast<int64_t>(header.size()), 8)) + shift,
                  ' ');
    const uint64_t length = header.size();
    std::ofstream out(dir_ + "/model.safetensors", std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out << header << data;
  }

  LoadRequest request(const Partition& partition = {}) const {
    return {.checkpoint = Checkpoint::open(dir_).value(),
            .shape = shape_,
            .source = source_,
            .partition = partition};
  }

  Result<std::unique_ptr<ModelWeights>> load(const LoadProgress& progress = nullptr,
                                             size_t shift = 0) {
    write(shift);
    return load_weights(request(), backend_, progress);
  }

  void expect_refused(const std::string& reason, ErrorCode code = ErrorCode::invalid_argument) {
    const auto weights = load();
    ASSERT_FALSE(weights.ok()) << reason;
    EXPECT_EQ(weights.error().code, code);
    EXPECT_THAT(weights.error().message, HasSubstr(reason));
    EXPECT_THAT(weights.error().message, HasSubstr(dir_));
  }

  // Stores a module in FP8, every value as it is, the scale of block (r, c) 2^-(r + c).
  void make_fp8(const std::string& module) {
    source_.scheme = WeightScheme::fp8_block128;
    const FakeTensor plain = tensors_[module + ".weight"];
    const int64_t rows = plain.shape[0];
    const int64_t columns = plain.shape[1];
    std::vector<Fp8E4m3> values;
    for (size_t i = 0; i < plain.bytes.size() / sizeof(Bf16); ++i) {
      Bf16 value;
      std::memcpy(&value, plain.bytes.data() + i * sizeof(Bf16), sizeof(Bf16));
      values.push_back(to_fp8_e4m3(to_float(value)));
    }
    std::vector<float> scales;
    for (int64_t r = 0; r < div_up(rows, 128); ++r) {
      for (int64_t c = 0; c < div_up(columns, 128); ++c) {
        scales.push_back(std::ldexp(1.0F, -static_cast<int>(r + c)));
      }
    }
    tensors_[module + ".weight"] = {Dtype::f8_e4m3, plain.shape, bytes_of(values)};
    tensors_[module + ".weight_scale_inv"] = {
        Dtype::f32, {div_up(rows, 128), div_up(columns, 128)}, bytes_of(scales)};
  }

  // Stores a module packed: nibble of input i is (i + row) mod 16, every scale 0.5.
  void make_int4(const std::string& module) {
    source_.scheme = WeightScheme::int4_group;
    source_.group = 32;
    const std::vector<int64_t> shape = tensors_[module + ".weight"].shape;
    tensors_.erase(module + ".weight");
    std::vector<uint32_t> words;
    for (int64_t row = 0; row < shape[0]; ++row) {
      for (int64_t word = 0; word < shape[1] / 8; ++word) {
        uint32_t packed = 0;
        for (int64_t n = 0; n < 8; ++n) {
          packed |= static_cast<uint32_t>((word * 8 + n + row) % 16) << (4 * n);
        }
        words.push_back(packed);
      }
    }
    const std::vector<Bf16> scales(static_cast<size_t>(shape[0] * shape[1] / 32), to_bf16(0.5F));
    tensors_[module + ".weight_packed"] = {Dtype::i32, {shape[0], shape[1] / 8}, bytes_of(words)};
    tensors_[module + ".weight_scale"] = {Dtype::bf16, {shape[0], shape[1] / 32}, bytes_of(scales)};
    tensors_[module + ".weight_shape"] = {Dtype::i32, {2}, bytes_of(std::vector<int32_t>{-7, 9})};
  }

  void make_all_experts(WeightFormat format) {
    for (const char* expert : {"0", "1"}) {
      for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
        const auto module = std::string("model.layers.1.mlp.experts.") + expert + "." + projection;
        if (format == WeightFormat::fp8_block128) make_fp8(module);
        if (format == WeightFormat::int4_group) make_int4(module);
      }
    }
  }

  TempFolder folder_;
  const std::string& dir_ = folder_.path();
  ModelShape shape_ = small_shape();
  WeightSource source_;
  std::map<std::string, FakeTensor> tensors_;
  MemoryBackend backend_{MemoryBackend::Reads::host_memory};
};

TEST_F(Loading, PutsEveryTensorInItsPlace) {
  const auto loaded = load();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const ModelWeights& weights = *loaded.value();
  const auto expect_values = [&](const std::string& name, const Bf16* data) {
    const std::string& expected = tensors_.at(name).bytes;
    EXPECT_EQ(std::memcmp(data, expected.data(), expected.size()), 0) << name;
  };
  expect_values("model.embed_tokens.weight", weights.embedding.data);
  expect_values("lm_head.weight", weights.lm_head.bf16.data);
  expect_values("model.norm.weight", weights.final_norm.data);
  const LayerWeights& dense = weights.layers[0];
  const LayerWeights& mixture = weights.layers[1];
  expect_values("model.layers.0.input_layernorm.weight", dense.input_norm.data);
  expect_values("model.layers.0.post_attention_layernorm.weight", dense.post_attention_norm.data);
  expect_values("model.layers.0.self_attn.q_a_proj.weight", dense.q_a.bf16.data);
  expect_values("model.layers.0.self_attn.q_a_layernorm.weight", dense.q_a_norm.data);
  expect_values("model.layers.0.self_attn.q_b_proj.weight", dense.q_b.bf16.data);
  expect_values("model.layers.0.self_attn.kv_a_proj_with_mqa.weight", dense.kv_a.bf16.data);
  expect_values("model.layers.0.self_attn.kv_a_layernorm.weight", dense.kv_a_norm.data);
  expect_values("model.layers.0.self_attn.o_proj.weight", dense.o.bf16.data);
  expect_values("model.layers.0.mlp.gate_proj.weight", dense.dense.gate.bf16.data);
  expect_values("model.layers.0.mlp.up_proj.weight", dense.dense.up.bf16.data);
  expect_values("model.layers.0.mlp.down_proj.weight", dense.dense.down.bf16.data);
  EXPECT_EQ(dense.experts, nullptr);
  const RawBank& bank = bank_of(mixture);
  expect_values("model.layers.1.mlp.gate.weight", mixture.router.bf16.data);
  expect_values("model.layers.1.mlp.experts.0.up_proj.weight", bank.routed[0].up.bf16.data);
  expect_values("model.layers.1.mlp.experts.1.gate_proj.weight", bank.routed[1].gate.bf16.data);
  expect_values("model.layers.1.mlp.experts.1.down_proj.weight", bank.routed[1].down.bf16.data);
  expect_values("model.layers.1.mlp.shared_experts.gate_proj.weight", bank.shared.gate.bf16.data);
  expect_values("model.layers.1.mlp.shared_experts.up_proj.weight", bank.shared.up.bf16.data);
  expect_values("model.layers.1.mlp.shared_experts.down_proj.weight", bank.shared.down.bf16.data);
  EXPECT_EQ(bank.routed[1].down.n_out, 32);
  EXPECT_EQ(bank.routed[1].down.n_in, 64);
  EXPECT_EQ(weights.expert_format, WeightFormat::bf16);
}

TEST_F(Loading, TheBiasOfTheRouterIsWidenedOrTakenAsItIs) {
  const std::string name = "model.layers.1.mlp.gate.e_score_correction_bias";
  const auto from_bf16 = load();
  ASSERT_TRUE(from_bf16.ok()) << from_bf16.error().message;
  Bf16 stored;
  std::memcpy(&stored, tensors_[name].bytes.data() + sizeof(Bf16), sizeof(Bf16));
  EXPECT_EQ(from_bf16.value()->layers[1].router_bias(1), to_float(stored));
  tensors_[name] = {Dtype::f32, {2}, bytes_of(std::vector<float>{0.1F, -0.3F})};
  const auto from_f32 = load();
  ASSERT_TRUE(from_f32.ok()) << from_f32.error().message;
  EXPECT_EQ(from_f32.value()->layers[1].router_bias(1), -0.3F);
}

TEST_F(Loading, KeysAndValuesAreSplitByHead) {
  const auto loaded = load();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const LayerWeights& layer = loaded.value()->layers[0];
  const std::string& bytes = tensors_["model.layers.0.self_attn.kv_b_proj.weight"].bytes;
  const auto stored = [&](int64_t row, int64_t column) {
    Bf16 value;
    std::memcpy(&value, bytes.data() + static_cast<size_t>(row * 160 + column) * sizeof(Bf16),
                sizeof(Bf16));
    return to_float(value);
  };
  for (int64_t head = 0; head < 2; ++head) {
    for (int64_t column = 0; column < 160; ++column) {
      for (int64_t d = 0; d < 3; ++d) {
        ASSERT_EQ(to_float(layer.w_uk(head, d, column)), stored(head * 8 + d, column));
      }
      for (int64_t d = 0; d < 5; ++d) {
        ASSERT_EQ(to_float(layer.w_uv(head, d, column)), stored(head * 8 + 3 + d, column));
      }
    }
  }
}

TEST_F(Loading, KeysAndValuesInFp8AreDequantised) {
  const std::string module = "model.layers.0.self_attn.kv_b_proj";
  const std::string plain = tensors_[module + ".weight"].bytes;
  make_fp8(module);
  const auto loaded = load();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const View<const Bf16, 3> w_uv = loaded.value()->layers[0].w_uv;
  for (const int64_t column : {0, 127, 128, 159}) {
    Bf16 value;
    std::memcpy(&value, plain.data() + static_cast<size_t>((8 + 3 + 2) * 160 + column) * 2, 2);
    // Column block 1 has scale 2^-1.
    EXPECT_EQ(to_float(w_uv(1, 2, column)), to_float(value) * (column < 128 ? 1.0F : 0.5F));
  }
}

TEST_F(Loading, Fp8) {
  make_fp8("model.layers.1.self_attn.o_proj");
  make_all_experts(WeightFormat::fp8_block128);
  const auto loaded = load();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const LayerWeights& layer = loaded.value()->layers[1];
  EXPECT_EQ(layer.o.format, WeightFormat::fp8_block128);
  EXPECT_EQ(layer.o.fp8_scale[0], 1);
  EXPECT_EQ(layer.q_a.format, WeightFormat::bf16);
  EXPECT_EQ(loaded.value()->expert_format, WeightFormat::fp8_block128);
}

TEST_F(Loading, Int4BytesAreReadAsTheyStand) {
  make_all_experts(WeightFormat::int4_group);
  const auto loaded = load();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const WeightMatrix& down = bank_of(loaded.value()->layers[1]).routed[1].down;
  EXPECT_EQ(down.format, WeightFormat::int4_group);
  EXPECT_EQ(down.group, 32);
  for (int64_t row = 0; row < down.n_out; ++row) {
    for (int64_t i = 0; i < down.n_in; ++i) {
      const int nibble = i % 2 == 0 ? down.int4(row, i / 2) & 15 : down.int4(row, i / 2) >> 4;
      ASSERT_EQ(nibble, (i + row) % 16);
    }
  }
  EXPECT_EQ(to_float(down.int4_scale(31, 1)), 0.5F);
}

TEST_F(Loading, BorrowsWhatIsAlignedAndCopiesTheRest) {
  const int64_t kv_b_bytes = 2 * 2 * 8 * 160 * 2;  // layers, heads, rows, columns, BF16
  const auto aligned = load();
  ASSERT_TRUE(aligned.ok());
  EXPECT_LT(aligned.value()->copied_bytes, kv_b_bytes + 2 * 3 * kBufferAlignment);
  EXPECT_GT(aligned.value()->borrowed_bytes, 0);
  const auto shifted = load(nullptr, 1);
  ASSERT_TRUE(shifted.ok());
  EXPECT_EQ(shifted.value()->borrowed_bytes, 0);
}

TEST_F(Loading, ADeviceGetsACopyOfEverything) {
  MemoryBackend device(MemoryBackend::Reads::own_memory);
  make_all_experts(WeightFormat::int4_group);
  write(0);
  const auto loaded = load_weights(request(), device, nullptr);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const ModelWeights& weights = *loaded.value();
  EXPECT_EQ(weights.borrowed_bytes, 0);
  EXPECT_EQ(weights.copied_bytes, weights.memory.bytes());
  const auto is_inside = [&](const void* data) {
    const auto* byte = static_cast<const std::byte*>(data);
    return byte >= weights.memory.data() && byte < weights.memory.data() + weights.memory.bytes();
  };
  EXPECT_TRUE(is_inside(weights.embedding.data));
  EXPECT_FALSE(is_inside(bank_of(weights.layers[1]).routed[0].up.int4.data));
  EXPECT_EQ(std::string(device.packed_up.begin(), device.packed_up.end()),
            tensors_["model.layers.1.mlp.experts.0.up_proj.weight_packed"].bytes);
  EXPECT_EQ(std::memcmp(weights.embedding.data, tensors_["model.embed_tokens.weight"].bytes.data(),
                        tensors_["model.embed_tokens.weight"].bytes.size()),
            0);
}

TEST_F(Loading, ProgressEndsAtEveryByteThatIsRead) {
  int64_t last = 0;
  int64_t total = 0;
  const auto loaded = load([&](int64_t done, int64_t all) {
    EXPECT_GE(done, last);
    last = done;
    total = all;
  });
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, loaded.value()->checkpoint.data_bytes());
}

// The value of row `row`, column `column` of a BF16 tensor as it is in the file.
float stored_value(const FakeTensor& tensor, int64_t row, int64_t column) {
  const int64_t columns = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
  Bf16 value;
  std::memcpy(&value, tensor.bytes.data() + static_cast<size_t>(row * columns + column) * 2, 2);
  return to_float(value);
}

TEST_F(Loading, ARankGetsItsPartOnAHostAndOnADevice) {
  write(0);
  MemoryBackend device(MemoryBackend::Reads::own_memory);
  for (MemoryBackend* backend : {&backend_, &device}) {
    const auto loaded = load_weights(request({1, 2}), *backend, nullptr);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    const ModelWeights& weights = *loaded.value();
    EXPECT_EQ(weights.shape.n_heads, 1);
    const LayerWeights& layer = weights.layers[0];
    const std::string prefix = "model.layers.0.";
    // Rows [begin, ...) and columns [begin, ...) of the whole, compared in a few places.
    const auto expect_part = [&](const View<const Bf16, 2>& part, const std::string& name,
                                 int64_t row_begin, int64_t column_begin) {
      const FakeTensor& whole = tensors_.at(name);
      for (int64_t row = 0; row < part[0]; ++row) {
        for (int64_t column = 0; column < part[1]; ++column) {
          ASSERT_EQ(to_float(part(row, column)),
                    stored_value(whole, row_begin + row, column_begin + column))
              << name << " " << row << " " << column;
        }
      }
    };
    expect_part(weights.embedding, "model.embed_tokens.weight", 5, 0);
    expect_part(weights.lm_head.bf16, "lm_head.weight", 5, 0);
    expect_part(layer.q_a.bf16, prefix + "self_attn.q_a_proj.weight", 0, 0);
    expect_part(layer.q_b.bf16, prefix + "self_attn.q_b_proj.weight", 7, 0);
    expect_part(layer.o.bf16, prefix + "self_attn.o_proj.weight", 0, 5);
    expect_part(layer.dense.up.bf16, prefix + "mlp.up_proj.weight", 6, 0);
    expect_part(layer.dense.down.bf16, prefix + "mlp.down_proj.weight", 0, 6);
    expect_part(layer.w_uk.row(0), prefix + "self_attn.kv_b_proj.weight", 8, 0);
    expect_part(layer.w_uv.row(0), prefix + "self_attn.kv_b_proj.weight", 11, 0);
    EXPECT_EQ(layer.o.n_in, 5);
    EXPECT_EQ(layer.input_norm[0], 32);
  }
}

TEST_F(Loading, ARankGetsWholeGroupsOfPackedWeights) {
  make_all_experts(WeightFormat::int4_group);
  write(0);
  const auto loaded = load_weights(request({1, 2}), backend_, nullptr);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const WeightMatrix& down = bank_of(loaded.value()->layers[1]).routed[1].down;
  EXPECT_EQ(down.n_in, 32);
  EXPECT_EQ(down.int4_scale[1], 1);
  for (int64_t row = 0; row < down.n_out; ++row) {
    for (int64_t i = 0; i < down.n_in; ++i) {
      const int nibble = i % 2 == 0 ? down.int4(row, i / 2) & 15 : down.int4(row, i / 2) >> 4;
      ASSERT_EQ(nibble, (32 + i + row) % 16);
    }
  }
}

TEST_F(Loading, APartitionThatDoesNotFitIsRefused) {
  write(0);
  const auto thirds = load_weights(request({0, 3}), backend_, nullptr);
  ASSERT_FALSE(thirds.ok());
  EXPECT_EQ(thirds.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(thirds.error().message, HasSubstr("2 heads cannot be shared by 3 ranks"));
}

TEST_F(Loading, NamesWhatIsMissing) {
  tensors_.erase("model.layers.1.mlp.experts.1.up_proj.weight");
  expect_refused("tensor \"model.layers.1.mlp.experts.1.up_proj.weight\" is missing");
  make_tensors();
  tensors_.erase("model.layers.0.self_attn.q_a_layernorm.weight");
  expect_refused("tensor \"model.layers.0.self_attn.q_a_layernorm.weight\" is missing");
}

TEST_F(Loading, NamesWhatIsNotOfTheArchitecture) {
  tensors_["model.layers.0.self_attn.q_a_proj.bias"] = fake_bf16({6}, 0);
  expect_refused("\"model.layers.0.self_attn.q_a_proj.bias\": is not part of this architecture");
}

TEST_F(Loading, LeavesUnreadWhatATextModelDoesNotNeed) {
  tensors_["model.layers.2.eh_proj.weight"] = fake_bf16({1}, 0);  // a layer past the last: MTP
  tensors_["model.layers.0.self_attn.rotary_emb.inv_freq"] = fake_bf16({1}, 0);
  EXPECT_TRUE(load().ok());
  tensors_["vision_tower.x"] = fake_bf16({1}, 0);
  expect_refused("\"vision_tower.x\": is not part of this architecture");
  source_.naming = CheckpointNaming::language_model;
  make_tensors();
  tensors_["vision_tower.x"] = fake_bf16({1}, 0);
  tensors_["mm_projector.y"] = fake_bf16({1}, 0);
  EXPECT_TRUE(load().ok());
  tensors_["language_model.z"] = fake_bf16({1}, 0);
  expect_refused("\"language_model.z\": is not part of this architecture");
}

TEST_F(Loading, SizesFollowFromTheConfig) {
  tensors_["model.embed_tokens.weight"] = fake_bf16({11, 32}, 0);
  expect_refused("expected BF16 [10, 32], found BF16 [11, 32]");
  make_tensors();
  tensors_["model.norm.weight"] = fake_bf16({32, 1}, 0);
  expect_refused("expected BF16 [32], found BF16 [32, 1]");
  make_tensors();
  tensors_["lm_head.weight"] = {Dtype::f16, {10, 32}, std::string(640, '\0')};
  expect_refused("expected BF16 [10, 32], found F16 [10, 32]");
}

TEST_F(Loading, Fp8MustAgreeWithItsConfigAndItsScales) {
  const std::string module = "model.layers.1.self_attn.o_proj";
  make_fp8(module);
  source_.scheme = WeightScheme::bf16;
  expect_refused(module + ".weight\": is F8_E4M3, and the config's weights are bf16");
  source_.scheme = WeightScheme::fp8_block128;
  tensors_[module + ".weight_scale_inv"].shape = {1};
  expect_refused("expected F32 [1, 1], found F32 [1]");
  tensors_.erase(module + ".weight_scale_inv");
  expect_refused("without a weight_scale_inv");
  make_tensors();
  make_fp8("model.layers.1.mlp.gate");
  expect_refused("FP8 is not supported for this tensor", ErrorCode::unsupported);
}

TEST_F(Loading, Int4MustAgreeWithItsConfigAndItsScales) {
  const std::string module = "model.layers.1.mlp.experts.0.gate_proj";
  make_all_experts(WeightFormat::int4_group);
  source_.scheme = WeightScheme::bf16;
  expect_refused("is packed, and the config's weights are bf16");
  source_.scheme = WeightScheme::int4_group;
  source_.ignored.push_back(NamePattern::parse("re:.*experts\\.0.*").value());
  expect_refused(module + ".weight_packed\": is packed, and the config's ignore list");
  source_.ignored.clear();
  source_.group = 128;
  expect_refused("32 inputs are not whole groups of 128");
  source_.group = 32;
  tensors_[module + ".weight"] = fake_bf16({64, 32}, 0);
  expect_refused("is there beside an unpacked weight");
  tensors_.erase(module + ".weight");
  tensors_.erase(module + ".weight_scale");
  expect_refused("is packed without a weight_scale");
  make_tensors();
  make_int4("model.layers.0.self_attn.kv_b_proj");
  expect_refused("INT4 is not supported for this tensor", ErrorCode::unsupported);
}

TEST_F(Loading, TheExpertsOfALayerShareAFormat) {
  make_int4("model.layers.1.mlp.experts.1.up_proj");
  expect_refused("experts of layer 1 differ in format", ErrorCode::unsupported);
}

TEST_F(Loading, QueriesInOneStep) {
  shape_.q_lora_rank = 0;
  make_tensors();
  const auto loaded = load();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const LayerWeights& layer = loaded.value()->layers[0];
  EXPECT_EQ(layer.q_b.n_in, 32);
  EXPECT_EQ(layer.q_b.n_out, 2 * 7);
  EXPECT_EQ(layer.q_a.n_out, 0);
  EXPECT_TRUE(tensors_.contains("model.layers.0.self_attn.q_proj.weight"));
}

}  // namespace
}  // namespace quire
