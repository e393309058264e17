#!/bin/bash
# compress_evals.sh QUIRE OUT [SECONDS [WEIGHTS]]: what kimi-nano loses in every format and by every
# method of `quire compress`, on a device: the full held-out sets with a BF16 and an FP8 cache, item
# by item against BF16 and FP8 weights, how far the distributions are from BF16's, and recall by
# depth with both caches. Needs python3 with numpy, regex and torch (the recipe's). Tables on
# stdout, the rest in OUT; sets that are in OUT/sets are taken. What has not begun after SECONDS is
# left out and said to be. WEIGHTS: only these, in one word; bf16 is the reference.
set -u
quire=$(realpath "${1:?usage: compress_evals.sh QUIRE OUT [SECONDS]}")
out=$(mkdir -p "${2:?}" && realpath "$2")
end=$((SECONDS + ${3:-3600}))
root=$(realpath "$(dirname "$0")/../..")
nano=$root/models/kimi-nano
all=${4:-bf16 fp8 rtn-g32 rtn-g128 gptq-g32 gptq-g128 nvfp4}
seven="arithmetic choice people tools sort copy count"

heldout() { # FOLDER SEED N TASK [N OF RECALL]
  [ ! -s "$out/$1/$4.jsonl" ] || return 0
  python3 "$nano/recipe/make_heldout.py" --n "$3" --recall-n "${5:-$3}" --seed "$2" --task "$4" \
    --out "$out/$1"
}

compress() { # NAME OPTIONS...
  "$quire" compress --input "$nano" --output "$out/$1" "${@:2}" > "$out/$1.txt" \
    2> "$out/$1.log" || echo "$1 was not written: $(tail -1 "$out/$1.log")"
}

prepare() {
  ln -sfn "$nano" "$out/bf16"
  for task in $seven; do
    heldout sets 11 4000 "$task" &
    heldout calibration 12 32 "$task" &
  done
  heldout sets 11 4000 recall &
  heldout calibration 12 8 recall &
  wait
  cat "$out"/calibration/*.jsonl > "$out/calibration.jsonl"
  for weights in $all; do write "$weights"; done
}

write() { # WEIGHTS
  local int4=(--format int4 --group-size "${1#*-g}")
  case $1 in
    bf16) ;;
    rtn-*) compress "$1" "${int4[@]}" ;;
    gptq-*) compress "$1" "${int4[@]}" --method gptq --calibration "$out/calibration.jsonl" \
      --activations "$out/activations" ;;
    *) compress "$1" --format "$1" ;;
  esac
}

evaluate() { # WEIGHTS CACHE
  local name=$1-$2 left=$((end - SECONDS))
  [ "$left" -gt 5 ] || { echo "left out for want of time: $name"; return; }
  timeout "$left" "$quire" eval --model-path "$out/$1" --device cuda --data "$out/sets" \
    --kv-cache-dtype "$2" --concurrency 192 --items "$out/$name.jsonl" --json \
    > "$out/$name.json" 2> "$out/$name.log" || echo "$name did not end: $(tail -1 "$out/$name.log")"
}

compare() { # A B MARGIN
  [ -s "$out/$1.jsonl" ] && [ -s "$out/$2.jsonl" ] || return 0
  echo "== $1 (a) and $2 (b)"
  "$quire" eval compare "$out/$1.jsonl" "$out/$2.jsonl" --margin "$3" | grep -v '^[ab]:'
}

# The texts are what the committed items hold, prompt and answer.
make_texts() {
  python3 - "$nano/eval" << 'END' > "$out/texts.jsonl"
import json, pathlib, sys
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.jsonl")):
    if path.stem.startswith("golden"):
        continue
    for line in path.read_text().splitlines()[: 8 if path.stem == "recall" else 30]:
        item = json.loads(line)
        ids = [i for t in item["turns"] for i in t["prompt_ids"] + t["expected_ids"]]
        print(json.dumps({"id": item["id"], "ids": ids}))
END
}

servers=()
serve() { # WEIGHTS CACHE PORT
  "$quire" serve --model-path "$out/$1" --device cuda --kv-cache-dtype "$2" \
    --max-total-tokens 240000 --served-model-name nano --port "$3" \
    > "$out/serve-$1-$2.log" 2>&1 &
  servers+=($!)
  for _ in $(seq 200); do
    curl -sf "http://127.0.0.1:$3/v1/models" > /dev/null && return
    sleep 0.2
  done
}

diverge() {
  local port=31900
  make_texts
  for cache in bf16 fp8_e4m3; do
    for weights in $all; do
      serve "$weights" "$cache" "$port"
      if [ "$port" != 31900 ]; then
        echo "== distributions of $weights-$cache against bf16-bf16"
        python3 "$root/evals/divergence.py" --base-url "http://127.0.0.1:$port" \
          --reference-url http://127.0.0.1:31900 --texts "$out/texts.jsonl" --concurrency 16 \
          2> "$out/divergence-$weights-$cache.log" ||
          tail -1 "$out/divergence-$weights-$cache.log"
      fi
      port=$((port + 1))
    done
  done
}

# 800 lists of 200 records at each of five depths, BF16 weights.
recall_by_depth() {
  local port=31950 asked=()
  for cache in bf16 fp8_e4m3; do
    serve bf16 "$cache" "$port"
    python3 "$root/evals/recall.py" --base-url "http://127.0.0.1:$port" --lines 200 \
      --per-depth 800 --concurrency 48 --chat-template-kwargs '{"thinking": false}' \
      --out "$out/depths-$cache.jsonl" > "$out/depths-$cache.log" 2>&1 &
    asked+=($!)
    port=$((port + 1))
  done
  wait "${asked[@]}"
  compare depths-bf16 depths-fp8_e4m3 0.005
}

prepare
for cache in bf16 fp8_e4m3; do
  for weights in $all; do evaluate "$weights" "$cache" & done
  wait
done
grep -hs "^calibrated" "$out"/gptq-*.txt
for cache in bf16 fp8_e4m3; do
  for weights in $all; do
    [ "$weights" = bf16 ] || compare "bf16-$cache" "$weights-$cache" 0.008
  done
  for weights in $all; do
    case $weights in bf16 | fp8) ;; *) compare "fp8-$cache" "$weights-$cache" 0.008 ;; esac
  done
done
for weights in $all; do compare "$weights-bf16" "$weights-fp8_e4m3" 0.005; done
diverge
recall_by_depth
kill "${servers[@]}"
