#include "compress/report.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/json.h"
#include "compress/calibrated_job.h"

namespace quire {

namespace {

Json calibration_json(const OutputLoss& outputs, double weight_square) {
  Json out = {{"tokens", outputs.n_tokens},
              {"held_out", outputs.n_held_out},
              {"method", outputs.is_gptq() ? "gptq" : "rtn"}};
  if (outputs.is_gptq()) out["damping"] = outputs.damping;
  if (outputs.output > 0) {
    out["output_error"] = outputs.kept_relative();
    out["rtn_output_error"] = outputs.rtn_relative();
  }
  out["rtn_relative_error"] =
      weight_square > 0 ? std::sqrt(outputs.rtn_weights / weight_square) : 0;
  return out;
}

Json tensor_json(const CompressJob& job, const TensorLoss& loss) {
  const QuantisationError& error = loss.weights;
  const TensorEntry& entry = job.matrix.values->entry;
  Json out = {
      {"name", entry.name},
      {"from", std::string(name(entry.dtype))},
      {"to", std::string(name_after(job.conversion))},
      {"relative_error", error.relative()},
      {"cosine", error.cosine()},
      {"worst_group",
       {{"row", error.worst_row}, {"group", error.worst_group}, {"relative_error", error.worst}}}};
  if (loss.outputs) out["calibration"] = calibration_json(*loss.outputs, error.weight);
  return out;
}

Json total_json(const ConversionTotal& total) {
  Json out = {{"to", std::string(name_after(total.conversion))},
              {"tensors", total.n_tensors},
              {"bytes_before", total.bytes_before},
              {"bytes_after", total.bytes_after}};
  if (total.conversion != Conversion::copy) {
    out["relative_error"] = total.error.relative();
    out["cosine"] = total.error.cosine();
  }
  return out;
}

}  // namespace

std::string_view name_after(Conversion conversion) {
  switch (conversion) {
    case Conversion::copy:
      return "as it was";
    case Conversion::to_bf16:
      return "BF16";
    case Conversion::to_int4:
      return "INT4";
    case Conversion::to_fp8:
      return "FP8";
    case Conversion::to_nvfp4:
      return "NVFP4";
  }
  CHECK(false);
  return {};
}

std::vector<ConversionTotal> total_by_conversion(
    const CompressPlan& plan, const std::vector<std::vector<TensorLoss>>& losses) {
  std::vector<ConversionTotal> out;
  for (const Conversion conversion : {Conversion::copy, Conversion::to_bf16, Conversion::to_int4,
                                      Conversion::to_fp8, Conversion::to_nvfp4}) {
    ConversionTotal total{.conversion = conversion};
    for (size_t shard = 0; shard < plan.shards.size(); ++shard) {
      const OutputShard& planned = plan.shards[shard];
      for (size_t i = 0; i < planned.jobs.size(); ++i) {
        const CompressJob& job = planned.jobs[i];
        if (job.conversion != conversion) continue;
        ++total.n_tensors;
        total.bytes_before += job.bytes_in();
        for (const size_t array : job.arrays) total.bytes_after += planned.arrays[array].bytes;
        total.error.merge(losses[shard][i].weights);
      }
    }
    if (total.n_tensors > 0) out.push_back(total);
  }
  return out;
}

std::optional<CalibrationTotal> total_calibration(
    const std::vector<std::vector<TensorLoss>>& losses) {
  std::optional<CalibrationTotal> out;
  for (const std::vector<TensorLoss>& shard : losses) {
    for (const TensorLoss& loss : shard) {
      if (!loss.outputs) continue;
      const OutputLoss& one = *loss.outputs;
      if (!out) out = CalibrationTotal{.tokens_least = one.n_tokens};
      const bool has_enough = has_enough_tokens(one);
      out->n_calibrated += one.is_gptq() ? 1 : 0;
      out->n_too_few += has_enough ? 0 : 1;
      out->n_not_better += has_enough && !one.is_gptq() ? 1 : 0;
      out->tokens_least = std::min(out->tokens_least, one.n_tokens);
      out->outputs.output += one.output;
      out->outputs.rtn += one.rtn;
      out->outputs.kept += one.kept;
    }
  }
  return out;
}

Json report_json(const CompressPlan& plan, const std::vector<std::vector<TensorLoss>>& losses) {
  Json totals = Json::array();
  for (const ConversionTotal& total : total_by_conversion(plan, losses)) {
    totals.push_back(total_json(total));
  }
  Json tensors = Json::array();
  for (size_t shard = 0; shard < plan.shards.size(); ++shard) {
    for (size_t i = 0; i < plan.shards[shard].jobs.size(); ++i) {
      const CompressJob& job = plan.shards[shard].jobs[i];
      if (job.conversion == Conversion::copy) continue;
      tensors.push_back(tensor_json(job, losses[shard][i]));
    }
  }
  Json out = {{"format", std::string(name(plan.options.format))}};
  if (plan.options.format == TargetFormat::int4) out["group_size"] = plan.options.group;
  out["bytes_before"] = plan.bytes_in;
  out["bytes_after"] = plan.bytes_out;
  if (const std::optional<CalibrationTotal> total = total_calibration(losses)) {
    out["calibration"] = {{"gptq_tensors", total->n_calibrated},
                          {"too_few_tokens", total->n_too_few},
                          {"not_better", total->n_not_better},
                          {"tokens_needed", kCalibrationTokensMin},
                          {"fewest_tokens", total->tokens_least},
                          {"output_error", total->outputs.kept_relative()},
                          {"rtn_output_error", total->outputs.rtn_relative()}};
  }
  out["totals"] = std::move(totals);
  out["tensors"] = std::move(tensors);
  return out;
}

}  // namespace quire
