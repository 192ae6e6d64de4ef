'use strict';
'require baseclass';
'require rpc';
'require uci';

/* What the pages of Millrace share. The program answers all questions: `millrace rpcd`. */

function declare(method, params) {
	const call = rpc.declare({
		object: 'luci.millrace',
		method: method,
		params: params || [],
		expect: { '': {} },
		reject: true
	});

	return function(/* ... */) {
		return call.apply(null, arguments).then(function(answer) {
			if (answer.error != null)
				throw new Error(answer.error);

			return answer;
		});
	};
}

/* A number with a unit. LuCI's own %m shows numbers below its base with all their digits. */
function scaled(value, step, units) {
	let place = 0;

	for (; Math.round(value) >= step && place < units.length - 1; place++)
		value /= step;

	return ((place && value < 99.95) ? value.toFixed(1) : Math.round(value)) + ' ' + units[place];
}

/* Codes of netifd's errors that the program reports, with a title and the remedy. */
const FAULTS = {
	NO_CONFIG: [
		_('Its section or its file is missing'),
		_('Put the file into its place, or correct its path in the interface\'s settings.')
	],
	CONFIG_FAULT: [
		_('The configuration has a mistake'),
		_('Correct it in the interface\'s settings or in the file.')
	],
	PEER_FAULT: [
		_('The settings of a peer are wrong'),
		_('Correct the peer in the interface\'s settings. Meanwhile only the other peers are used.')
	],
	UPLINK_UNKNOWN: [
		_('An uplink has no device'),
		_('Bring the uplink up, or correct the list of uplinks, and restart the interface.')
	],
	START_FAILED: [
		_('The tunnel could not start, or it ended'),
		_('It is started again by itself. If that does not help, look into the system log.')
	],
	NO_ANSWER: [
		_('The other end does not answer'),
		_('Check its address, port and key, and whether it runs. It is called again and again.')
	],
	DISTURBED: [
		_('Another program removes addresses or routes of the interface'),
		_('Stop that program, and restart the interface.')
	],
	NO_PROGRAM: [
		_('The program is missing'),
		_('Install the package millrace, and restart the interface.')
	],
	AUTH_FAILED: [
		_('The other end refuses the login or the certificate'),
		_('Correct the name, password or certificate, and restart the interface.')
	]
};

/* The program's words for states, of the guard, of uplinks, and of clients' files. */
const STATES = {
	off: _('off'),
	held: _('held'),
	through: _('through'),
	up: _('up'),
	unknown: _('unknown'),
	degraded: _('degraded'),
	down: _('down'),
	outdated: _('outdated'),
	pending: _('pending')
};

/* Polls for which a rate is kept: five minutes of one each three seconds. */
const SAMPLES = 100;

const SVG = 'http://www.w3.org/2000/svg';

function shape(name, attributes, children) {
	const node = document.createElementNS(SVG, name);

	for (let key in attributes)
		node.setAttribute(key, attributes[key]);

	(children || []).forEach(function(child) {
		node.appendChild(child);
	});

	return node;
}

return baseclass.extend({
	status: declare('status'),
	peers: declare('peers'),
	check: declare('check', [ 'interface', 'name', 'data' ]),
	keep: declare('keep', [ 'interface', 'name', 'data', 'replace' ]),
	generateKeys: declare('generate_keys'),
	publicKey: declare('public_key', [ 'private_key' ]),
	addPeer: declare('peer_add', [ 'server', 'name', 'lan_only', 'behind' ]),
	revokePeer: declare('peer_revoke', [ 'server', 'name' ]),
	setPeer: declare('peer_set', [ 'server', 'name', 'behind' ]),
	renamePeer: declare('peer_rename', [ 'server', 'name', 'to' ]),
	planServer: declare('server_plan', [ 'name', 'openvpn', 'endpoint', 'lan' ]),
	makeServer: declare('server_init', [ 'name', 'openvpn', 'endpoint', 'lan', 'subnet', 'subnet6' ]),

	/* The network device of an interface, as the program names it. */
	deviceName: function(name) {
		if (name.length <= 12)
			return 'mr-' + name;

		let digest = 0x811c9dc5;

		for (let i = 0; i < name.length; i++)
			digest = Math.imul(digest ^ name.charCodeAt(i), 0x01000193) >>> 0;

		return 'mr-' + name.substring(0, 6) + (digest >>> 8).toString(16).padStart(6, '0');
	},

	/* Bytes as base64, in pieces that fit onto the stack. */
	toBase64: function(bytes) {
		let text = '';

		for (let i = 0; i < bytes.length; i += 4096)
			text += String.fromCharCode.apply(null, bytes.subarray(i, i + 4096));

		return btoa(text);
	},

	fromBase64: function(text) {
		return Uint8Array.from(atob(text), function(letter) {
			return letter.charCodeAt(0);
		});
	},

	rate: function(bits) {
		return (bits == null) ? '-' : scaled(bits, 1000, [ _('bit/s'), _('kbit/s'), _('Mbit/s'), _('Gbit/s') ]);
	},

	size: function(bytes) {
		return scaled(bytes || 0, 1024, [ _('B'), _('KiB'), _('MiB'), _('GiB'), _('TiB') ]);
	},

	/* A time in its largest unit. LuCI's own %t always begins with hours. */
	span: function(seconds) {
		if (seconds < 90)
			return _('%d s').format(seconds);

		if (seconds < 5400)
			return _('%d min').format(Math.round(seconds / 60));

		if (seconds < 172800)
			return _('%d h').format(Math.round(seconds / 3600));

		const days = Math.round(seconds / 86400);

		return N_(days, '%d day', '%d days').format(days);
	},

	/* When a peer was last heard, and the title of that column: only WireGuard makes handshakes all the time. */
	heard: function(tunnel, peer) {
		const age = (tunnel.protocol == 'wireguard') ? peer.latest_handshake_age : peer.last_heard_age;

		if (age != null)
			return _('%s ago').format(this.span(age));

		return (tunnel.protocol == 'wireguard') ? _('never') : '-';
	},

	heardTitle: function(tunnel) {
		return (tunnel.protocol == 'wireguard') ? _('Handshake') : _('Last heard');
	},

	/* A sentence of the program, which is English in every language. Commands and names stand between backticks. */
	said: function(text) {
		return E('span', { 'lang': 'en' }, String(text).split(/`([^`]+)`/).map(function(part, i) {
			return (i % 2) ? E('code', {}, [ part ]) : part;
		}));
	},

	/* A box for what went wrong: a text, or a sentence of the program. */
	warning: function(words) {
		return E('div', { 'class': 'alert-message warning', 'style': 'overflow-wrap:anywhere' }, [ words ]);
	},

	stateName: function(state) {
		return STATES[state] || state;
	},

	faultCodes: Object.keys(FAULTS),

	faultTitle: function(code) {
		return FAULTS[code] ? FAULTS[code][0] : code;
	},

	/* The faults of an interface, each with the program's words and the remedy. */
	faults: function(it) {
		return ((it && it.faults) || []).map(L.bind(function(fault) {
			return E('div', { 'class': 'alert-message warning', 'style': 'overflow-wrap:anywhere', 'data-fault': fault.code }, [
				E('strong', {}, [ this.faultTitle(fault.code) ]), fault.words ? ': ' : '', this.said(fault.words),
				FAULTS[fault.code] ? E('div', {}, [ FAULTS[fault.code][1] ]) : ''
			]);
		}, this));
	},

	/* A shortened key; all of it is in the tooltip. */
	key: function(key) {
		return E('code', { 'title': key }, [ key.replace(/^(.{6}).+(.{6})$/, '$1…$2') ]);
	},

	protocol: function(tunnel) {
		const names = { wireguard: 'WireGuard', openvpn: 'OpenVPN', pptp: 'PPTP' };

		return tunnel.amnezia ? 'AmneziaWG ' + tunnel.amnezia : names[tunnel.protocol] || tunnel.protocol;
	},

	/* Whether packets can pass: [ CSS class of a label, words ]. */
	state: function(tunnel) {
		switch (tunnel.state) {
		case 'connected':
			return [ 'success', _('connected') ];

		case 'connecting':
			return [ 'warning', _('connecting') ];

		case 'waiting':
			return [ 'warning', _('waiting') ];

		case 'silent':
			return [ 'warning', _('no answer') ];

		case 'no carrier':
			return [ 'warning', _('no carrier') ];
		}

		const peers = tunnel.peers || [];

		if (tunnel.protocol != 'wireguard')
			return [ 'success', N_(peers.length, '%d client', '%d clients').format(peers.length) ];

		/* Keys are renewed each two minutes, and end after three. */
		const alive = peers.filter(function(peer) {
			return peer.latest_handshake_age != null && peer.latest_handshake_age < 180;
		}).length;

		return [ alive ? 'success' : 'warning', _('%d of %d peers connected').format(alive, peers.length) ];
	},

	/* Why a tunnel cannot pass packets, as the content of an element. */
	reason: function(tunnel) {
		if (tunnel.state == 'waiting')
			return [ _('Not up yet, waiting for:'), ' ', this.said(tunnel.waiting_for) ];

		const why = (tunnel.state == 'silent' || tunnel.state == 'no carrier') && (tunnel.peers[0] || {}).reason;

		return why ? [ this.said(why) ] : [];
	},

	/* The state of an interface without a running tunnel. */
	down: function(it) {
		return it.disabled ? _('disabled') : it.pending ? _('not up yet') : _('down');
	},

	/* Sums of bytes of a tunnel's peers. */
	bytes: function(tunnel) {
		const sum = { rx: 0, tx: 0 };

		(tunnel.peers || []).forEach(function(peer) {
			sum.rx += peer.rx_bytes || 0;
			sum.tx += peer.tx_bytes || 0;
		});

		return sum;
	},

	/* Takes a sample of a tunnel into its history, by the tunnel's own clock. */
	sample: function(history, tunnel) {
		const now = this.bytes(tunnel), last = history.last;
		const span = last ? tunnel.uptime_ms - last.at : 0;

		/* A clock that runs back is another process's. */
		if (span < 0)
			history.values = [];
		else if (span > 0)
			history.values.push([
				Math.max(0, now.rx - last.rx) * 8000 / span,
				Math.max(0, now.tx - last.tx) * 8000 / span
			]);

		if (span != 0 || !last)
			history.last = { at: tunnel.uptime_ms, rx: now.rx, tx: now.tx };

		history.values = history.values.slice(-SAMPLES);

		return history.values[history.values.length - 1] || [ null, null ];
	},

	/* The history as lines: received blue, sent green, as LuCI's own pages have them. */
	graph: function(history) {
		const width = 600, height = 120, step = width / (SAMPLES - 1);
		const values = history.values;
		const peak = values.reduce(function(most, pair) {
			return Math.max(most, pair[0], pair[1]);
		}, 0);
		const top = Math.max(peak, 1000);

		const line = function(index, colour) {
			const points = values.map(function(pair, i) {
				const x = width - (values.length - 1 - i) * step;
				const y = height - pair[index] / top * (height - 16);

				return x.toFixed(1) + ',' + y.toFixed(1);
			});

			return shape('polyline', {
				'points': points.join(' '), 'fill': 'none', 'stroke': colour, 'stroke-width': 2,
				'vector-effect': 'non-scaling-stroke'
			});
		};

		return E('div', { 'class': 'millrace-graph', 'style': 'border:1px solid #888' }, [
			shape('svg', {
				'viewBox': '0 0 %d %d'.format(width, height), 'preserveAspectRatio': 'none', 'role': 'img',
				'aria-label': _('Rates of the last five minutes'), 'style': 'width:100%;height:120px;display:block'
			}, [ line(0, '#3c78d8'), line(1, '#38a048') ]),
			E('small', { 'style': 'padding:0 .4em' }, [ _('Peak of five minutes: %s').format(this.rate(peak)) ])
		]);
	},

	/* A QR code from rows of 0 and 1: dark on light whatever the theme, with the margin that cameras need. */
	code: function(rows) {
		const size = rows.length + 8;
		let path = '';

		rows.forEach(function(row, y) {
			for (let x = 0; x < row.length; x++)
				if (row[x] == '1')
					path += 'M%d %dh1v1h-1z'.format(x + 4, y + 4);
		});

		return shape('svg', {
			'class': 'millrace-code', 'viewBox': '0 0 %d %d'.format(size, size), 'shape-rendering': 'crispEdges',
			'role': 'img', 'aria-label': _('QR code'), 'style': 'width:100%;max-width:24em;display:block;margin:0 auto 1em'
		}, [
			shape('rect', { 'width': size, 'height': size, 'fill': '#fff' }),
			shape('path', { 'd': path, 'fill': '#000' })
		]);
	},

	/* A part that is folded away. `open` keeps over polls whether it is open; `render` makes the content once it is. */
	fold: function(open, key, title, render) {
		const node = E('details', {
			'open': open[key] ? '' : null,
			'toggle': function() {
				open[key] = node.open;

				if (node.open && node.children.length == 1)
					node.appendChild(render());
			}
		}, [ E('summary', {}, [ title ]) ].concat(open[key] ? [ render() ] : []));

		return node;
	},

	/* A rule of the firewall that the program offers, as /etc/config/firewall shows it. */
	ruleText: function(rule) {
		return [ 'config rule \'%s\''.format(rule.section) ].concat(Object.keys(rule.options).map(function(option) {
			return '\toption %s \'%s\''.format(option, rule.options[option]);
		})).join('\n');
	},

	/* Adds such a rule to the changes that are saved next. */
	addRule: function(rule) {
		return uci.load('firewall').then(function() {
			if (!uci.get('firewall', rule.section))
				uci.add('firewall', 'rule', rule.section);

			for (let option in rule.options)
				uci.set('firewall', rule.section, option, rule.options[option]);
		});
	},

	/* All figures of a tunnel, by their names in the status document. */
	figures: function(tunnel) {
		const rows = [];
		const walk = function(value, name) {
			if (value && typeof value == 'object' && typeof value[0] != 'string')
				Object.keys(value).forEach(function(key) {
					walk(value[key], name ? name + '.' + key : key);
				});
			else if (value != null)
				rows.push(E('tr', { 'class': 'tr' }, [
					E('td', { 'class': 'td', 'style': 'flex:3 3 60%' }, [ name ]),
					E('td', { 'class': 'td', 'style': 'flex:1 1 30%' }, [ String(value) ])
				]));
		};

		walk(tunnel, '');

		return E('table', { 'class': 'table', 'lang': 'en' }, rows);
	},

	/* What the guard does with a family's packets. */
	way: function(way) {
		if (way && way.through)
			return E('span', {}, [ _('through %s').format(way.through) ]);

		return E('span', {}, [ _('blocked:'), ' ', this.said((way && way.held) || '') ]);
	}
});
