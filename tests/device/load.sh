#!/bin/bash
# load.sh QUIRE SECONDS [OPTIONS OF quire serve...]: kimi-nano on a device under pressure. 64
# streams with shared prefixes, 5 % of whose clients leave, in a pool that holds a third of them.
# Exit code 0: no request was lost, the audit found nothing, and the device allocated nothing after
# the start.
set -u
quire=$(realpath "${1:?usage: load.sh QUIRE SECONDS [OPTIONS]}")
seconds=${2:?}
shift 2
here=$(dirname "$(realpath "$0")")
nano=$here/../../models/kimi-nano
port=31100
log=$(mktemp)

get() { # PORT PATH
  python3 -c 'import sys, urllib.request
with urllib.request.urlopen(sys.argv[1], timeout=30) as answer: print(answer.read().decode())' \
    "http://127.0.0.1:$1$2"
}

"$quire" serve --device cuda --model-path "$nano" --port "$port" --admin-port $((port + 1)) \
  --max-total-tokens 16384 --context-length 2048 "$@" > "$log" 2>&1 &
server=$!
for _ in $(seq 150); do
  get "$port" /health > /dev/null 2>&1 && break
  sleep 0.2
done
code=0
"$quire" bench serve --base-url "http://127.0.0.1:$port" --duration "$seconds" \
  --max-concurrency 64 --random-input-len 900 --random-output-len 160 --num-prefixes 4 \
  --prefix-len 256 --abandon 0.05 || code=1
sleep 2
echo "audit: $(get $((port + 1)) /audit)"
[ "$(get $((port + 1)) /audit)" = '{"clean":true}' ] || code=1
get "$port" /server_info | python3 -c 'import json, sys
found = json.load(sys.stdin)["internal_states"][0]["device_allocations_after_start"]
print("device allocations after the start:", found)
sys.exit(0 if found == 0 else 1)' || code=1
counters='num_requests|num_aborted_requests|cached_tokens|prompt_tokens|requests_failed'
counters+='|preemptions|steps|integrity_checks|integrity_failures|late_events'
get "$port" /metrics | grep -E "^(sglang|quire):($counters)_total" | sed 's/{[^}]*}//'
kill "$server"
wait "$server" || code=1
tail -3 "$log"
exit "$code"
