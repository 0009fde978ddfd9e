# Loads what a node's network namespace is to hold, and tells what it holds. Run by the harness in the node's
# net container (harness/cluster/containers/network.py), as root with NET_ADMIN. In the environment, any of:
#   LOOK     before: tell first what there is; after: tell it at the end
#   WAYS     1: tell what this kernel can do to packets
#   RULES    the whole table `filter`, for iptables-restore --noflush
#   RESHAPE  1: the device's queueing is replaced by SHAPING, for tc -batch (empty: the kernel's own)
#   REQUEUE  1: from now on QUEUES are served (delay.py's words; empty: none), and no others
#   SERVED   numbers of the queues that should be served until now
#   RESET    a filter for ss: connections to be reset
# What it tells stands below headings: "== before", "== ways", "== unserved" (queues), "== there", "== reset"
# and "== kept" (connections), "== after", and "== failed", with what went wrong.
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

# In a chain that nothing leads to, and at the loopback device: nobody's packets pass either.
ways() {
    chain=floodmark-ways
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
    tc qdisc del dev lo root 2>/dev/null || : # as far as it came
}

# Those who serve queues, but for the one named.
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
if [ -n "${WAYS-}" ]; then
    echo "== ways"
    ways
fi
for queue in ${SERVED-}; do
    served | grep -q "^ *$queue " || printf '== unserved\n%s\n' "$queue"
done

# What is to be done comes first, then whom it replaces ends: no packet passes in between.
if [ -n "${REQUEUE-}" ] && [ -n "${QUEUES-}" ]; then
    # shellcheck disable=SC2086 # a word for each queue
    new=$(python "$delay" $QUEUES)
fi
if [ -n "${RULES-}" ]; then
    # Without --noflush its chains would be made anew, and the kernel would drop what queues hold.
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
            echo "waited $end_s s for delay.py to let go what it held" >&2
            exit 1
        fi
        left=$((left - 1))
        sleep 0.01
    done
fi
new= # from here on it stays

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
