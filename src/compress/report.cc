#include "compress/report.h"

#include <string>

namespace quire {

namespace {

Json tensor_json(const CompressJob& job, const QuantisationError& error) {
  return {
      {"name", job.values->entry.name},
      {"from", std::string(name(job.values->entry.dtype))},
      {"to", std::string(name_after(job.conversion))},
      {"relative_error", error.relative()},
      {"cosine", error.cosine()},
      {"worst_group",
       {{"row", error.worst_row}, {"group", error.worst_group}, {"relative_error", error.worst}}}};
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
    const CompressPlan& plan, const std::vector<std::vector<QuantisationError>>& errors) {
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
        total.error.merge(errors[shard][i]);
      }
    }
    if (total.n_tensors > 0) out.push_back(total);
  }
  return out;
}

Json report_json(const CompressPlan& plan,
                 const std::vector<std::vector<QuantisationError>>& errors) {
  Json totals = Json::array();
  for (const ConversionTotal& total : total_by_conversion(plan, errors)) {
    totals.push_back(total_json(total));
  }
  Json tensors = Json::array();
  for (size_t shard = 0; shard < plan.shards.size(); ++shard) {
    for (size_t i = 0; i < plan.shards[shard].jobs.size(); ++i) {
      const CompressJob& job = plan.shards[shard].jobs[i];
      if (job.conversion == Conversion::copy) continue;
      tensors.push_back(tensor_json(job, errors[shard][i]));
    }
  }
  Json out = {{"format", std::string(name(plan.options.format))}};
  if (plan.options.format == TargetFormat::int4) out["group_size"] = plan.options.group;
  out["bytes_before"] = plan.bytes_in;
  out["bytes_after"] = plan.bytes_out;
  out["totals"] = std::move(totals);
  out["tensors"] = std::move(tensors);
  return out;
}

}  // namespace quire
