#!/bin/sh
# shellcheck shell=sh disable=SC1091,SC2034
# Protocol handler of netifd. All logic is in the program, which reads UCI itself.

[ -n "$INCLUDE_ONLY" ] || {
	. /lib/functions.sh
	. ../netifd-proto.sh
	init_proto "$@"
}

proto_millrace_init_config() {
	no_device=1
	available=1
	renew_handler=1
	# Only options that require a new device: netifd takes the interface down for any change of an option declared here.
	proto_config_add_string config_file
	proto_config_add_boolean allow_files
	proto_config_add_string mode
	proto_config_add_array 'uplink:list(string)'
}

proto_millrace_setup() {
	# Without this check, netifd would start a missing program again and again, without a pause.
	[ -x /usr/sbin/millrace ] || {
		proto_notify_error "$1" NO_PROGRAM "/usr/sbin/millrace is missing: install it, then run \"ifup $1\""
		proto_block_restart "$1"
		return 1
	}
	proto_run_command "$1" /usr/sbin/millrace netifd "$1"
}

proto_millrace_renew() {
	# SIGHUP
	proto_kill_command "$1" 1
}

# The program itself reports errors. It blocks its restart if it exits with code 19; after any other exit netifd
# restarts it at once, so this waits a second. ERROR is unset if netifd ended the program, and 0 after a signal.
proto_millrace_teardown() {
	case "${ERROR-}" in
	'' | 19) ;;
	*) sleep 1 ;;
	esac
	proto_kill_command "$1"
}

[ -n "$INCLUDE_ONLY" ] || add_protocol millrace
