#!/bin/bash
# correctness.sh BIN [SECONDS]: the op cases, the goldens, the engine and compute-sanitizer on a
# machine with a device, each for at most SECONDS (150). BIN is the folder of ops_test, golden_test
# and engine_device_test. Tools and suites run beside each other: two minutes on 16 cores. Ends with
# a line a check; exit code 1 if one failed.
set -u
bin=${1:?usage: correctness.sh BIN [SECONDS]}
seconds=${2:-150}
results=$(mktemp -d)

# Fails, too, if a line of the output matches `unwanted` and not `explained`.
unwanted=
explained=
check() { # NAME COMMAND...
  local name=$1 begin=$SECONDS log code result
  shift
  log=$results/$name.log
  timeout "$seconds" "$@" > "$log" 2>&1
  code=$?
  result=$(grep -hE 'PASSED|(ERROR|RACECHECK) SUMMARY' "$log" | sed 's/=\+ //' | tr '\n' ' ')
  if [ "$code" -eq 0 ] && [ -n "$unwanted" ] &&
    grep -E "$unwanted" "$log" | grep -qvE "$explained"; then
    code=reports
  fi
  if [ "$code" = 0 ]; then
    echo "ok      $name ($((SECONDS - begin)) s): $result" >> "$results/summary"
  else
    echo "FAILED  $name ($code, $((SECONDS - begin)) s): $result" >> "$results/summary"
    echo "== $name"
    grep -m 40 -E '=========|FAILED|Failure' "$log"
    tail -12 "$log"
  fi
}

# Cases small enough for a tool that slows a kernel down a hundredfold, and every kernel in them:
# not the thousands of draws, nor the pool past 2^32 bytes.
declare -A suites=(
  [decode]='AttentionTest.Mla*/cuda:AttentionTest.History*/cuda:AttentionTest.Scores*/cuda'
  [chunks]='AttentionTest.Chunks*/cuda:AttentionTest.ByHead*/cuda:AttentionTest.Absorb*/cuda'
  [linear]='LinearTest.*/cuda'
  [experts]='MoeTest.*/cuda'
  [rows]='PointwiseTest.*/cuda:KvAppendTest.*/cuda:PlaceTokensTest.*/cuda:OpenStepTest.*/cuda'
  [sampling]='SampleTest.*/cuda:SampleRowsTest.*/cuda'
)
suites[decode]+=':AttentionTest.NaN*/cuda'
suites[sampling]+='-*Draw*:*Truncation*:*Temperature*:*TopKKeeps*:*TopPKeeps*:*MinP*'

sanitize() { # NAME SUITE OPTIONS...
  local name=$1 suite=$2
  shift 2
  check "$name-$suite" compute-sanitizer "$@" "$bin/ops_test" --gtest_filter="${suites[$suite]}" \
    --gtest_brief=1 &
}

# By themselves: beside twenty tools, which get as much of the device, each takes ten times as long.
check ops_test "$bin/ops_test" --gtest_filter='*/cuda*' --gtest_brief=1
check golden_test "$bin/golden_test" --gtest_filter='*Cuda*' --gtest_brief=1
check engine_device_test "$bin/engine_device_test" --gtest_brief=1
if command -v compute-sanitizer > /dev/null; then
  for suite in "${!suites[@]}"; do
    sanitize memcheck "$suite" --tool memcheck --error-exitcode 9
    sanitize initcheck "$suite" --tool initcheck --error-exitcode 9
  done
  # racecheck does not follow a lane that arrives at a barrier in shared memory for its whole warp,
  # behind __syncwarp: it reports every textbook ring of bulk copies (docs/kernels/mla_decode.md).
  # Three kernels give stages back that way; with an arrival for every lane it reports nothing of
  # them. Two are left out; the products, without which it does not run, and those of cuBLASLt are
  # checked and what it says of them is passed over.
  declare -A left_out=(
    [decode]=kns=mla_decode_kernel
    [chunks]=kns=mla_decode_kernel
    [experts]=kns=prefill_kernel
  )
  unwanted='Race reported between|Maximum number of hazards'
  explained='wide_kernel|nvjet|sm90_xmma|cutlass'
  for suite in "${!suites[@]}"; do
    options=(--tool racecheck --print-limit 10000)
    [ -n "${left_out[$suite]:-}" ] && options+=(--kernel-name-exclude "${left_out[$suite]}")
    sanitize racecheck "$suite" "${options[@]}"
  done
else
  echo "absent  compute-sanitizer" >> "$results/summary"
fi
wait
sort "$results/summary"
! grep -q '^FAILED' "$results/summary"
