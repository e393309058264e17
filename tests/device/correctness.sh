#!/bin/bash
# correctness.sh BIN [SECONDS]: the op cases, the goldens, the engine and compute-sanitizer on a
# machine with a device, each for at most SECONDS. BIN is the folder of ops_test, golden_test and
# engine_device_test. Ends with a line a check; exit code 1 if one failed.
set -u
bin=${1:?usage: correctness.sh BIN [SECONDS]}
seconds=${2:-120}
summary=$(mktemp)

check() { # NAME COMMAND...
  local name=$1 begin=$SECONDS log code result
  shift
  log=$(mktemp)
  timeout "$seconds" "$@" > "$log" 2>&1
  code=$?
  result=$(grep -E 'PASSED|(ERROR|RACECHECK) SUMMARY' "$log" | tr '\n' ' ')
  if [ "$code" -eq 0 ]; then
    echo "ok      $name ($((SECONDS - begin)) s): $result" >> "$summary"
  else
    echo "FAILED  $name (code $code, $((SECONDS - begin)) s): $result" >> "$summary"
    echo "== $name"
    grep -m 40 -E '=========|FAILED|Failure' "$log"
    tail -12 "$log"
  fi
  rm -f "$log"
}

# Cases small enough for a tool that slows a kernel down a hundredfold: one of each kind of kernel,
# and not the thousands of draws.
sanitized='AttentionTest.MlaMatchesTheReference/cuda:KvAppendTest.*/cuda:MoeTest.*/cuda'
sanitized+=':LinearTest.*/cuda:PointwiseTest.*/cuda:SampleTest.*/cuda-*DrawsFromTheSoftmax*'

check "ops_test, every case" "$bin/ops_test" --gtest_filter='*/cuda*' --gtest_brief=1
check "golden_test" "$bin/golden_test" --gtest_filter='*Cuda*' --gtest_brief=1
check "engine_device_test" "$bin/engine_device_test" --gtest_brief=1
if command -v compute-sanitizer > /dev/null; then
  for tool in memcheck racecheck initcheck; do
    check "compute-sanitizer $tool" compute-sanitizer --tool "$tool" --error-exitcode 9 \
      "$bin/ops_test" --gtest_filter="$sanitized" --gtest_brief=1 &
  done
  wait
else
  echo "absent  compute-sanitizer" >> "$summary"
fi
cat "$summary"
! grep -q '^FAILED' "$summary"
