# The tables of scripts/count-kernel: lines of
# CONTENDER COLUMN CARRIED SWITCHES LOST LOAD PROGRAMS KERNEL LOAD-CALLS CALLS
{
    packets = $3
    # KiB of a stream, in segments of 1,368 bytes: 1,420 less headers.
    if ($2 ~ /^tcp/) packets = $3 * 1024 / 1368
    # There and back.
    if ($2 ~ /^one/) packets = $3 * 2
    if (!($1 in seen)) { seen[$1] = 1; names[++count] = $1 }
    all[$1, $2] = ($6 + $7 + $8) / packets / 1000
    switches[$1, $2] = $4 / packets
    calls[$1, $2] = $10 / packets
    if ($10 > packets / 100) programs[$1] = 1
    if ($5 > 0) lost = lost $1 " " $2 ": " $5 " lost\n"
}

function head(what,    at, line) {
    printf "\n| %s |", what
    for (at = 1; at <= width; at++) printf " %s |", column[at]
    printf "\n|---|"
    for (at = 1; at <= width; at++) printf "---:|"
    print ""
}

function ratio(ours, theirs,    at) {
    if (!(ours in seen) || !(theirs in seen)) return
    printf "| %s : %s |", ours, theirs
    for (at = 1; at <= width; at++)
        if (all[theirs, column[at]]) printf " %.2fx |", all[ours, column[at]] / all[theirs, column[at]]
        else printf " – |"
    print ""
}

END {
    width = split(columns, column, " ")
    printf "Kernel %s, one virtual machine, AES-NI and AVX2, no AVX-512; both ends, load and sink included; one run.\n", kernel
    head("thousand instructions per packet")
    for (at = 1; at <= count; at++) {
        printf "| %s |", names[at]
        for (to = 1; to <= width; to++)
            if ((names[at], column[to]) in all) printf " %.1f |", all[names[at], column[to]]
            else printf " – |"
        print ""
    }
    ratio("millrace-wireguard", "kernel-wireguard")
    ratio("millrace-amneziawg-2.0", "millrace-wireguard")
    ratio("millrace-amneziawg-3.1", "millrace-wireguard")
    ratio("millrace-aes-256-gcm", "kernel-ovpn-aes-256-gcm")
    ratio("millrace-kernel-aes-256-gcm", "kernel-ovpn-aes-256-gcm")
    ratio("millrace-aes-256-gcm", "openvpn-aes-256-gcm")
    ratio("millrace-chacha20-poly1305", "kernel-ovpn-chacha20-poly1305")
    ratio("millrace-chacha20-poly1305", "openvpn-chacha20-poly1305")
    for (at = 1; at <= count; at++)
        if (names[at] ~ /,/ && names[at] !~ /,1$/) {
            first = names[at]
            sub(/,.*/, ",1", first)
            ratio(names[at], first)
            if (names[at] ~ /,8$/) ratio(names[at], names[at] ":1")
        }
    head("system calls of the VPN, task switches of the machine, per packet")
    for (at = 1; at <= count; at++) {
        printf "| %s |", names[at]
        for (to = 1; to <= width; to++)
            if ((names[at], column[to]) in all) printf " %.2f, %.2f |", calls[names[at], column[to]], switches[names[at], column[to]]
            else printf " – |"
        print ""
    }
    print "\ndef: cables (veth) as they are. nic: without segmentation offloads, with GRO. off: without either. fwd: nic, and what is"
    print "carried comes from behind one end and goes behind the other. tcp: one stream; a packet is 1,420 bytes. udp: datagrams of"
    print "64 bytes one way, 64 on their way at most, an answer for 32 of them. one: a datagram of 64 bytes and its answer, one on its way;"
    print "both are packets. MTU 1420 inside."
    if (names[1] ~ /,/ || count > 0 && names[count] ~ /,/)
        print "NAME,PROCESSORS: as many workers as processors at either end; NAME,8:1: one worker on eight processors."
    if (lost) printf "\n%s", lost
}
