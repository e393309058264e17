#!/bin/bash
# evals.sh QUIRE OUT [SECONDS]: kimi-nano's full held-out sets on a device in every combination of
# weight and cache format, beside the CPU's answers to the first items of each task, the CPU's
# recall in the other formats, and the two controls that must lose. Needs python3 with numpy. Items
# and logs land in OUT, tables on stdout; what has not begun after SECONDS is left out and said to
# be.
set -u
quire=$(realpath "${1:?usage: evals.sh QUIRE OUT [SECONDS]}")
out=$(mkdir -p "${2:?}" && realpath "$2")
end=$((SECONDS + ${3:-3600}))
here=$(dirname "$(realpath "$0")")
nano=$(realpath "$here/../../models/kimi-nano")
# The device's engines and a server that is under load beside this want cores too.
threads=$(($(nproc) > 8 ? $(nproc) - 6 : $(nproc)))
paired=1000 # items a task on the CPU
seven=arithmetic,choice,people,tools,sort,copy,count

make_sets() {
  for task in arithmetic choice people tools sort copy count; do
    python3 "$nano/recipe/make_heldout.py" --n 4000 --task "$task" --out "$out/sets" &
  done
  python3 "$nano/recipe/make_heldout.py" --n 4000 --recall-n 1000 --task recall --out "$out/sets" &
  mkdir -p "$out/weights"
  ln -sfn "$nano" "$out/weights/bf16"
  for format in fp8 int4-g32 int3-control; do
    python3 "$nano/recipe/quantize.py" --in "$nano" --out "$out/weights/$format" \
      --format "$format" > /dev/null &
  done
  wait
}

evaluate() { # NAME WEIGHTS OPTIONS...
  local name=$1 weights=$2
  shift 2
  if [ "$SECONDS" -ge "$end" ]; then
    echo "left out for want of time: $name"
    return
  fi
  timeout "$((end - SECONDS + 5))" "$quire" eval --model-path "$out/weights/$weights" \
    --concurrency 64 --items "$out/$name.jsonl" --json "$@" > "$out/$name.json" \
    2> "$out/$name.log" || echo "$name did not end: $(tail -1 "$out/$name.log")"
}

on_device() { # WEIGHTS
  for kv in bf16 fp8_e4m3; do
    evaluate "cuda-$1-$kv" "$1" --device cuda --data "$out/sets" --kv-cache-dtype "$kv"
  done
}

on_cpu() {
  for weights in bf16 fp8 int4-g32; do
    for kv in bf16 fp8_e4m3; do
      evaluate "cpu-$weights-$kv" "$weights" --threads "$threads" --data "$out/sets" \
        --kv-cache-dtype "$kv" --task "$seven" --limit "$paired"
    done
  done
  # The committed sets from here on.
  local cpu=(--threads "$threads" --data "$nano/eval")
  evaluate recall-cpu-bf16-fp8_e4m3 bf16 "${cpu[@]}" --kv-cache-dtype fp8_e4m3 --task recall
  evaluate recall-cpu-fp8-bf16 fp8 "${cpu[@]}" --task recall
  evaluate recall-cpu-int4-g32-bf16 int4-g32 "${cpu[@]}" --task recall
  evaluate control-cpu-kv bf16 "${cpu[@]}" --kv-cache-dtype fp8_e4m3 \
    --control kv-coarse --task "$seven"
  evaluate control-cpu-int3 int3-control "${cpu[@]}" --task "$seven"
}

controls_on_device() {
  evaluate control-cuda-kv bf16 --device cuda --data "$out/sets" --kv-cache-dtype fp8_e4m3 \
    --control kv-coarse
  evaluate control-cuda-int3 int3-control --device cuda --data "$out/sets"
}

make_sets
(
  for weights in bf16 fp8 int4-g32; do on_device "$weights" & done
  wait
  controls_on_device
) &
on_cpu
wait
python3 "$here/eval_table.py" "$out"
code=0
for weights in bf16 fp8 int4-g32; do
  for kv in bf16 fp8_e4m3; do
    [ -s "$out/cpu-$weights-$kv.jsonl" ] && [ -s "$out/cuda-$weights-$kv.jsonl" ] || continue
    echo "== $weights weights, $kv cache: CPU (first) and device (second)"
    python3 "$here/pair_items.py" "$out/cpu-$weights-$kv.jsonl" "$out/cuda-$weights-$kv.jsonl" ||
      code=1
  done
done
exit "$code"
