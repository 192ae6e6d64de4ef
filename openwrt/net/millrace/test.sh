#!/bin/sh
# Tests an installed package: test.sh NAME VERSION

case "$1" in
millrace)
	millrace --version | grep -F "$2" || exit 1
	umask 077
	file=$(mktemp -d)/office.conf
	cat >"$file" <<-EOF
	[Interface]
	PrivateKey = $(millrace genkey)
	Address = 192.0.2.2/32

	[Peer]
	PublicKey = $(millrace genkey | millrace pubkey)
	AllowedIPs = 0.0.0.0/0
	Endpoint = 198.51.100.1:51820
	EOF
	millrace check "$file"
	;;
millrace-openvpn)
	openvpn --version | grep -F "$2"
	;;
esac
