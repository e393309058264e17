#!/bin/bash
# figures.sh QUIRE CONFIG OUT [SECONDS [NAME...]]: the figures of docs/benchmarks.md and
# docs/kernels/integrity.md that need a device, or of these the runs named. CONFIG is a folder with
# Kimi K2.6's config.json, of which one rank of eight runs with dummy weights: the decode step with
# both caches, its ops, more batches, --deterministic, FP8 experts, prompts, ops by themselves, and
# the cost of the page checks, within SECONDS (1,300; all take about 1,000). A run that hangs or
# fails costs its own time limit and is said to have. Tables on stdout and in OUT; exit code 1 if a
# run failed.
set -u
quire=$(realpath "${1:?usage: figures.sh QUIRE CONFIG OUT [SECONDS [NAME...]]}")
config=$(realpath "${2:?}")
out=$(mkdir -p "${3:?}" && realpath "$3")
end=$((SECONDS + ${4:-1300}))
names=("${@:5}")
code=0

# A folder whose experts are in FP8 blocks, the rest as it is.
make_fp8_config() {
  mkdir -p "$out/fp8-experts"
  python3 - "$config/config.json" "$out/fp8-experts/config.json" << 'END'
import json, sys
config = json.load(open(sys.argv[1]))
config.get("text_config", config)["quantization_config"] = {
    "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
    "modules_to_not_convert": [
        "lm_head", ".*self_attn.*", ".*shared_experts.*",
        ".*mlp\\.(gate|up|gate_up|down)_proj.*",
    ],
}
json.dump(config, open(sys.argv[2], "w"))
END
}

run() { # NAME SECONDS BENCH OPTIONS...
  local name=$1 limit=$2 left=$((end - SECONDS))
  shift 2
  [ ${#names[@]} = 0 ] || [[ " ${names[*]} " == *" $name "* ]] || return
  [ "$left" -ge "$limit" ] || limit=$left
  [ "$limit" -gt 2 ] || { echo "left out for want of time: $name"; return; }
  echo "== $name: quire bench $*"
  timeout -k 2 "$limit" "$quire" bench "$@" --device cuda > "$out/$name.txt" 2> "$out/$name.log"
  local status=$?
  cat "$out/$name.txt"
  [ $status = 0 ] && return
  code=1
  echo "FAILED $name ($status): $(tail -1 "$out/$name.log")"
}

make_fp8_config
rank=(--load-format dummy --tp 8 --rank-share)
int4=("${rank[@]}" --model-path "$config")
fp8=("${rank[@]}" --model-path "$out/fp8-experts")
cache=(--kv-cache-dtype fp8_e4m3)
run short 20 decode "${int4[@]}" --kv-cache-dtype both --batch 1,8 --context 1024 --rounds 3
run step 60 decode "${int4[@]}" --kv-cache-dtype both --rounds 7
run step-ops 20 decode "${int4[@]}" "${cache[@]}" --context 8192 --rounds 1 --ops
run batches 20 decode "${int4[@]}" "${cache[@]}" --batch 2,4,16,24,48 --context 8192 --rounds 3
run deterministic 30 decode "${int4[@]}" "${cache[@]}" --deterministic --context 8192 --rounds 3
run fp8-experts 40 decode "${fp8[@]}" "${cache[@]}" --batch 1,2,4,8,32 --context 8192 --rounds 5
run fp8-experts-64 40 decode "${fp8[@]}" "${cache[@]}" --batch 64 --context 4096 --rounds 5
run int4-experts-64 20 decode "${int4[@]}" "${cache[@]}" --batch 64 --context 4096 --rounds 5
run prompt 40 prefill "${int4[@]}" --kv-cache-dtype both --rounds 5
run prompt-fp8-experts 40 prefill "${fp8[@]}" "${cache[@]}" --rounds 3
run ops 60 op
checks=(integrity "${int4[@]}" "${cache[@]}" --every 50)
run checks 185 "${checks[@]}" --points 1x8192,2x8192,4x8192,8x8192 --seconds 175 --alone 8 \
  --alone-steps 300
run checks-32 120 "${checks[@]}" --points 32x8192 --seconds 110
run checks-64 235 "${checks[@]}" --points 64x8192 --seconds 220
run checks-64-alone 115 "${checks[@]}" --points 64x8192 --steps 300 --alone 64 --seconds 100
run checks-64-long 285 "${checks[@]}" --points 64x20992 --seconds 270
exit $code
