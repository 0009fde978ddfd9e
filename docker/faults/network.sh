# Sets up the firewall, queueing and packet queues of a node's network namespace, and prints its state. The harness
# runs it in the node's net container (harness/cluster/containers/network.py), as root with NET_ADMIN. It reads
# these environment variables, each of which may be missing:
#   LOOK     before: print the state first; after: print it at the end
#   FEATURES 1: print what this kernel can do to packets
#   RULES    the complete table `filter`, for iptables-restore --noflush
#   RESHAPE  1: replace the device's queueing by SHAPING, for tc -batch (empty: the kernel's default)
#   REQUEUE  1: from now on serve QUEUES (arguments of delay.py; empty: none), and no others
#   SERVED   numbers of the queues that should be served until now
#   RESET    a filter for ss: reset these connections
# It prints below headings: "== before", "== features", "== unserved" (queues), "== there", "== reset" and
# "== kept" (connections), "== after", and "== failed" with the error.
set -eu
device=eth0
delay=/opt/floodmark/faults/delay.py
table=/proc/net/netfilter/nfnetlink_queue # each line: queue, who serves it, ...; it may not be there at all
errors=/tmp/floodmark-network.errors
end_s=5
new= # the delay.py that was started

finish() {
    code=$?
    trap - EXIT
    if [ "$code" != 0 ]; then
        [ -z "$new" ] || kill "$new"
        echo "== failed"
        cat "$errors"
    fi
    exit 0
}
trap finish EXIT
exec 2>"$errors"

served() {
    if [ -e "$table" ]; then cat "$table"; fi
}

look() {
    iptables-save
    tc qdisc show
    served
}

# It tries them in a chain that no rule uses, and on the loopback device, so no packet is affected.
features() {
    chain=floodmark-features
    iptables -w 5 -N "$chain"
    if iptables -w 5 -A "$chain" -m statistic --mode random --probability 0.5 -j DROP 2>/dev/null; then
        echo statistic
    fi
    if iptables -w 5 -A "$chain" -j NFQUEUE --queue-num 0 --queue-bypass 2>/dev/null &&
        server=$(python "$delay" 65535,resend=1 2>/dev/null); then
        echo queue
        kill "$server"
    fi
    iptables -w 5 -F "$chain"
    iptables -w 5 -X "$chain"
    if printf '%s\n' 'qdisc add dev lo root handle 1: htb default 0' \
        'class add dev lo parent 1: classid 1:1 htb rate 10gbit quantum 60000' \
        'qdisc add dev lo parent 1:1 netem delay 1ms' \
        'filter add dev lo parent 1: protocol ip prio 1 u32 match ip dst 192.0.2.1/32 flowid 1:1' |
        tc -batch - 2>/dev/null; then
        echo netem
    fi
    tc qdisc del dev lo root 2>/dev/null || : # there is none if the batch failed early
}

# Prints the processes that serve queues, except the given one.
servers() {
    served | while read -r _ server _; do
        [ "$server" = "$1" ] || echo "$server"
    done | sort -u
}

connections() {
    ss -H -t -n "$@" state synchronized exclude time-wait "( $RESET )"
}

if [ "${LOOK-}" = before ]; then
    echo "== before"
    look
fi
if [ -n "${FEATURES-}" ]; then
    echo "== features"
    features
fi
for queue in ${SERVED-}; do
    served | grep -q "^ *$queue " || printf '== unserved\n%s\n' "$queue"
done

# The new rules and queues start before the old ones end: no packet passes in between.
if [ -n "${REQUEUE-}" ] && [ -n "${QUEUES-}" ]; then
    # shellcheck disable=SC2086 # a word for each queue
    new=$(python "$delay" $QUEUES)
fi
if [ -n "${RULES-}" ]; then
    # Without --noflush the chains would be created again, and the kernel would drop the queued packets.
    printf %s "$RULES" | iptables-restore -w 5 --noflush
fi
if [ -n "${RESHAPE-}" ]; then
    tc qdisc del dev "$device" root 2>/dev/null || : # there may be none
    if [ -n "${SHAPING-}" ]; then printf %s "$SHAPING" | tc -batch -; fi
fi
if [ -n "${REQUEUE-}" ]; then
    for server in $(servers "$new"); do kill -TERM "$server"; done
    left=$((end_s * 100))
    while [ -n "$(servers "$new")" ]; do
        if [ "$left" = 0 ]; then
            echo "waited $end_s s for delay.py to release its packets" >&2
            exit 1
        fi
        left=$((left - 1))
        sleep 0.01
    done
fi
new= # from here on `finish` does not kill it

if [ -n "${RESET-}" ]; then
    echo "== there"
    connections
    echo "== reset"
    connections -K
    echo "== kept"
    connections
fi
if [ "${LOOK-}" = after ]; then
    echo "== after"
    look
fi
