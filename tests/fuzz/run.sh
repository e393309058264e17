#!/bin/sh
# Runs every fuzzer for a fixed time, two at once, from its committed seeds.
# Usage: tests/fuzz/run.sh BUILD_DIR SECONDS     exits 1 when one finds a fault.
set -eu
build=$1
seconds=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$build/fuzz-corpus
logs=$build/fuzz-logs
mkdir -p "$work" "$logs"
status=0
run_one() {
  name=$1
  mkdir -p "$work/$name"
  seeds=$here/seeds/$name
  [ -d "$seeds" ] || seeds=
  "$build/tests/fuzz/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 \
    -print_final_stats=1 -artifact_prefix="$logs/$name-" "$work/$name" $seeds \
    >"$logs/$name.log" 2>&1
}
set -- $(cd "$here" && ls *_fuzz.cc | sed 's/\.cc$//')
[ $# -gt 0 ] || { echo "fuzz: no fuzzers"; exit 1; }
passed=0
while [ $# -gt 0 ]; do
  first=$1; shift
  run_one "$first" & first_pid=$!
  second=
  if [ $# -gt 0 ]; then second=$1; shift; run_one "$second" & second_pid=$!; fi
  for pair in "$first:$first_pid" ${second:+"$second:$second_pid"}; do
    name=${pair%%:*}
    if wait "${pair##*:}"; then
      passed=$((passed + 1))
      echo "fuzz: $name: $(grep -o 'stat::number_of_executed_units: *[0-9]*' "$logs/$name.log" \
        | grep -o '[0-9]*$') runs, no fault"
    else
      status=1
      echo "fuzz: $name: FAULT"
      tail -n 40 "$logs/$name.log"
    fi
  done
done
echo "fuzz: $passed fuzzers passed"
exit $status
