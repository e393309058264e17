// The texts that a compression is calibrated with, out of files of JSON lines. A line is
// {"text": "..."}, {"ids": [..]}, or an item of docs/eval.md, whose turns are one sequence.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "compress/activation_record.h"

namespace quire {

// The first `tokens_max` tokens, in order of the files and their lines. `model_dir` has the
// tokenizer, which is loaded for text alone. Errors: not_found, invalid_argument, naming file and
// line.
Result<CalibrationTexts> read_calibration_texts(const std::vector<std::string>& paths,
                                                const std::string& model_dir, int64_t tokens_max);

}  // namespace quire
