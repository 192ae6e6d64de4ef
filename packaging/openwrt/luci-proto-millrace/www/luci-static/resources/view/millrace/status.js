'use strict';
'require view';
'require poll';
'require dom';
'require ui';
'require uci';
'require tools.millrace as tools';

/* A tunnel with more peers does not show them before it is asked to. */
const PEERS_SHOWN = 5;

/* Cards side by side; one with an open part gets the whole width. Long names break on phones. */
const STYLE = '.millrace-cards{display:grid;gap:1em;grid-template-columns:repeat(auto-fill,minmax(min(100%,26em),1fr));align-items:start}' +
	'.millrace-cards>*{margin:0;min-width:0}.millrace-cards>:has(details[open]){grid-column:1/-1}' +
	'.millrace-cards summary{cursor:pointer;padding:.3em 0}.millrace-page .td{overflow-wrap:anywhere}';

const histories = {}, opened = {};

function label(kind, words) {
	return E('span', { 'class': 'label ' + kind }, [ words ]);
}

function warning(words) {
	return tools.warning(tools.said(words));
}

function table(titles, rows) {
	return E('table', { 'class': 'table' }, [
		E('tr', { 'class': 'tr table-titles' }, titles.map(function(title) {
			return E('th', { 'class': 'th' }, [ title ]);
		}))
	].concat(rows.map(function(cells) {
		return E('tr', { 'class': 'tr' }, cells.map(function(cell, i) {
			return E('td', { 'class': 'td', 'data-title': titles[i] || null }, Array.isArray(cell) ? cell : [ cell ]);
		}));
	})));
}

function lineState(line) {
	const kinds = { up: 'success', degraded: 'warning', down: 'danger' };

	return [
		label(kinds[line.state] || 'notice', tools.stateName(line.state)),
		' ',
		tools.said(line.reason || ''),
		line.state_age != null ? E('small', {}, [ ' ', _('for %s').format(tools.span(line.state_age)) ]) : ''
	];
}

function about(peer) {
	const parts = [ tools.said(peer.detail) ];

	if (peer.behind.length)
		parts.push(' · ', _('behind it: %s').format(peer.behind.join(', ')));

	if (peer.file == 'outdated' || peer.file == 'pending')
		parts.push(' · ', _('file: %s').format(tools.stateName(peer.file)));

	return parts;
}

function cap(line) {
	if (!line.cap)
		return '-';

	return _('%s of %s').format(tools.size(line.cap.used_bytes), tools.size(line.cap.cap_bytes));
}

function renderPeers(tunnel, names) {
	const peers = tunnel.peers || [];

	if (!peers.length)
		return E('p', {}, [ E('em', {}, [ _('No peers') ]) ]);

	return table([ _('Peer'), _('Endpoint'), tools.heardTitle(tunnel), _('Received'), _('Sent') ], peers.map(function(peer) {
		const name = names[peer.public_key] || peer.name || peer.username;

		return [
			[ name || '', name && peer.public_key ? ' ' : '', peer.public_key ? tools.key(peer.public_key) : '' ],
			peer.endpoint || '-',
			tools.heard(tunnel, peer),
			tools.size(peer.rx_bytes),
			tools.size(peer.tx_bytes)
		];
	}));
}

function renderLines(tunnel, names) {
	const rows = [];

	(tunnel.peers || []).forEach(function(peer) {
		(peer.lines || []).forEach(function(line) {
			rows.push([
				line.name,
				names[peer.public_key] || peer.name || (peer.public_key ? tools.key(peer.public_key) : '-'),
				lineState(line),
				line.in_use ? _('yes') : _('no'),
				line.round_trip_ms != null ? _('%.1f ms').format(line.round_trip_ms) : '-',
				_('%s received, %s sent').format(tools.size(line.received_bytes), tools.size(line.sent_bytes)),
				cap(line)
			]);
		});
	});

	return rows.length
		? table([ _('Uplink'), _('Peer'), _('State'), _('In use'), _('Round trip'), _('Bytes'), _('Month') ], rows)
		: null;
}

function renderTunnel(tunnel, it, alone) {
	const history = histories[tunnel.interface] || (histories[tunnel.interface] = { values: [] });
	const rates = tools.sample(history, tunnel);
	const state = tools.state(tunnel);
	const names = (it && it.peers) || {};
	const peers = tunnel.peers || [], lines = renderLines(tunnel, names);

	/* The opened parts by tunnel and name. */
	const part = function(name, title, render) {
		return tools.fold(opened, tunnel.interface + ' ' + name, title, render);
	};

	const peersKey = tunnel.interface + ' peers';

	if (opened[peersKey] == null)
		opened[peersKey] = alone && peers.length <= PEERS_SHOWN;

	return E('div', { 'class': 'cbi-section millrace-tunnel', 'data-interface': tunnel.interface }, [
		E('h3', {}, [ it ? it.interface : tunnel.interface, ' ', label(state[0], state[1]) ]),
		E('div', {}, tools.faults(it)),
		E('div', {}, (tunnel.warnings || []).map(warning)),
		E('p', { 'class': 'millrace-reason' }, tools.reason(tunnel)),
		E('p', { 'class': 'millrace-rates' }, [
			E('strong', { 'style': 'border-bottom:2px solid #3c78d8' }, [ _('Received:') ]), ' ', tools.rate(rates[0]), ' \xa0 ',
			E('strong', { 'style': 'border-bottom:2px solid #38a048' }, [ _('Sent:') ]), ' ', tools.rate(rates[1])
		]),
		tools.graph(history),
		E('p', {}, [
			tools.protocol(tunnel), ' · ', tunnel.interface, ' · ', _('up for %s').format(tools.span(tunnel.uptime_ms / 1000)),
			tunnel.mtu ? ' · ' + _('MTU %d').format(tunnel.mtu) : '',
			tunnel.listen_port ? ' · ' + _('UDP port %d').format(tunnel.listen_port) : '',
			(tunnel.addresses || []).length ? ' · ' + tunnel.addresses.join(', ') : ''
		]),
		part('peers', _('Peers (%d)').format(peers.length), function() { return renderPeers(tunnel, names); }),
		lines ? part('uplinks', _('Uplinks'), function() { return lines; }) : '',
		part('figures', _('All figures'), function() { return tools.figures(tunnel); })
	]);
}

function renderGuard(guard) {
	const words = {
		off: _('Off: LAN devices use the router\'s normal routes.'),
		held: _('Held: no tunnel is up, so traffic of the guarded devices is blocked. They still reach the router and each other.'),
		through: _('Through: traffic of the guarded devices uses a tunnel or is blocked.')
	};

	const rows = [];
	const row = function(title, value) {
		if (value != null && value !== '')
			rows.push([ title, value ]);
	};

	row(_('Guarded'), (guard.lan || []).join(', '));
	row(_('They reach'), (guard.reach || []).join(', '));

	if (guard.state != 'off') {
		const groups = guard.groups || [];

		if (groups.length > 1)
			groups.forEach(function(group) {
				row(group.lan.join(', '), [ 'IPv4: ', tools.way(group.ipv4), '; IPv6: ', tools.way(group.ipv6) ]);
			});
		else {
			row('IPv4', tools.way(guard.ipv4));
			row('IPv6', tools.way(guard.ipv6));
		}

		row(_('Packet filter'), tools.said(guard.packet_filter));
		row(_('Rules'), tools.said('IPv4: %s, IPv6: %s'.format(guard.rules_ipv4, guard.rules_ipv6)));
		row(_('Refused packets'), guard.refused_packets);
	}

	return E('div', { 'class': 'cbi-section millrace-guard' }, [
		E('h3', {}, [ _('Guard'), ' ', label(guard.whole ? 'success' : 'warning', tools.stateName(guard.state)) ]),
		E('p', {}, [ words[guard.state] || '' ]),
		E('div', {}, (guard.notes || []).map(warning)),
		E('p', {}, guard.to_let_go ? [ _('To unblock:'), ' ', tools.said(guard.to_let_go) ] : []),
		tools.fold(opened, 'guard', _('Details'), function() { return table([ _('Part'), _('State') ], rows); })
	]);
}

function renderStatus(page, status) {
	const interfaces = {};

	status.interfaces.forEach(function(it) {
		interfaces[it.device] = it;
	});

	const cards = status.tunnels.map(function(tunnel) {
		const it = interfaces[tunnel.interface];

		delete interfaces[tunnel.interface];

		return renderTunnel(tunnel, it, status.tunnels.length == 1);
	});

	/* Those that do not run. */
	Object.keys(interfaces).forEach(function(device) {
		const it = interfaces[device];

		cards.push(E('div', { 'class': 'cbi-section', 'data-interface': device }, [
			E('h3', {}, [ it.interface, ' ', label('notice', tools.down(it)) ]),
			E('div', {}, tools.faults(it)),
			E('p', {}, [ _('It is not running. The system log has details.') ])
		]));
	});

	if (status.guard)
		cards.push(renderGuard(status.guard));

	const parts = status.problems.map(warning);

	if (status.gre_rule)
		parts.push(E('div', { 'class': 'alert-message warning millrace-rule' }, [
			E('p', {}, [ _('PPTP needs GRE (IP protocol 47), which this router\'s firewall rejects.') ]),
			E('button', { 'class': 'btn millrace-add-rule', 'click': ui.createHandlerFn(page, 'handleRule', status.gre_rule) }, [ _('Show a rule that accepts it') ])
		]));

	parts.push(E('div', { 'class': 'millrace-cards' }, cards));

	if (!status.tunnels.length && !status.interfaces.length)
		parts.push(E('p', {}, [ E('em', {}, [ _('There is no tunnel. Make one with Network » Interfaces » Add new interface, with the protocol Millrace.') ]) ]));

	return parts;
}

return view.extend({
	load: function() {
		return Promise.all([
			tools.status(),
			L.resolveDefault(tools.peers(), { servers: [] })
		]);
	},

	fail: function(error) {
		ui.addNotification(null, E('p', {}, [ tools.said(error.message) ]));
	},

	refreshPeers: function() {
		return tools.peers().then(L.bind(function(home) {
			dom.content(document.querySelector('#millrace-home'), this.renderHome(home));
		}, this));
	},

	/* A form in a window: what went wrong stands in it. */
	ask: function(title, parts, words, work) {
		const fault = E('p', { 'class': 'alert-message warning', 'style': 'display:none' });

		ui.showModal(title, parts.concat([
			fault,
			E('div', { 'class': 'right' }, [
				E('button', { 'class': 'btn', 'click': ui.hideModal }, [ _('Cancel') ]), ' ',
				E('button', {
					'class': 'btn cbi-button-positive important',
					'click': ui.createHandlerFn(this, function() {
						return work().catch(function(error) {
							dom.content(fault, tools.said(error.message));
							fault.style.display = '';
						});
					})
				}, [ words ])
			])
		]));
	},

	/* LuCI's own window of changes, which applies them, comes after this one. */
	handleRule: function(rule, ev) {
		this.ask(_('Add a rule to the firewall'), [
			E('p', {}, [ _('PPTP needs GRE (IP protocol 47), which this router\'s firewall rejects. This rule accepts it:') ]),
			E('pre', { 'style': 'overflow:auto;tab-size:4' }, [ tools.ruleText(rule) ])
		], _('Add this rule'), function() {
			return tools.addRule(rule)
				.then(function() { return uci.save(); })
				.then(function() { return ui.changes.init(); })
				.then(function() {
					ui.hideModal();
					ui.changes.displayChanges();
				});
		});
	},

	handleServer: function(ev) {
		const name = E('input', { 'type': 'text', 'class': 'cbi-input-text', 'id': 'millrace-server-name', 'maxlength': 15, 'placeholder': 'home' });
		const openvpn = E('input', { 'type': 'checkbox', 'id': 'millrace-server-openvpn' });
		const endpoint = E('input', { 'type': 'text', 'class': 'cbi-input-text', 'id': 'millrace-server-endpoint', 'maxlength': 260, 'placeholder': 'home.example.org' });
		const lan = E('input', { 'type': 'text', 'class': 'cbi-input-text', 'id': 'millrace-server-lan', 'maxlength': 500 });

		this.ask(_('Make a server at home'), [
			E('p', {}, [ E('label', {}, [ _('Name'), ' ', name ]) ]),
			E('p', {}, [ E('label', {}, [ openvpn, ' ', _('OpenVPN, not WireGuard') ]) ]),
			E('p', {}, [ E('label', {}, [ _('Public name or address'), ' ', endpoint ]), ' ', E('small', {}, [ _('Leave empty for the uplink\'s address') ]) ]),
			E('p', {}, [ E('label', {}, [ _('Networks at home'), ' ', lan ]), ' ', E('small', {}, [ _('Leave empty for the router\'s networks') ]) ])
		], _('Show the plan'), L.bind(function() {
			return tools.planServer(name.value, openvpn.checked, endpoint.value, lan.value).then(L.bind(function(plan) {
				this.showPlan(plan, [ name.value, openvpn.checked, endpoint.value, lan.value ]);
			}, this));
		}, this));
	},

	/* What is shown is what is made: the networks of the plan are asked for again. */
	showPlan: function(plan, wanted) {
		this.ask(_('Plan'), [
			E('pre', { 'class': 'millrace-plan', 'style': 'white-space:pre-wrap' }, [ tools.said(plan.said) ])
		], _('Make it'), L.bind(function() {
			return tools.makeServer.apply(tools, wanted.concat([ plan.subnet, plan.subnet6 ])).then(L.bind(function(made) {
				ui.showModal(_('The server is ready'), [
					E('pre', { 'class': 'millrace-made', 'style': 'white-space:pre-wrap' }, [ tools.said(made.said) ]),
					E('div', { 'class': 'right' }, [
						E('button', { 'class': 'btn', 'click': ui.hideModal }, [ _('Done') ])
					])
				]);

				return this.refreshPeers();
			}, this));
		}, this));
	},

	handleRename: function(server, peer, ev) {
		const to = E('input', { 'type': 'text', 'class': 'cbi-input-text', 'id': 'millrace-peer-to', 'maxlength': 63, 'value': peer.name });

		this.ask(_('Rename %s').format(peer.name), [
			E('p', {}, [ E('label', {}, [ _('Name'), ' ', to ]), ' ', E('small', {}, [ _('Letters, digits, “-”, “_” and “.”') ]) ])
		], _('Rename'), L.bind(function() {
			const name = (peer.name != '-') ? peer.name : peer.id;

			return tools.renamePeer(server, name, to.value).then(L.bind(function() {
				ui.hideModal();

				return this.refreshPeers();
			}, this));
		}, this));
	},

	/* Networks behind a client, and what is said about a change of them. */
	networks: function(value) {
		return E('p', {}, [
			E('label', {}, [ _('Networks behind it'), ' ', E('input', { 'type': 'text', 'class': 'cbi-input-text', 'id': 'millrace-peer-behind', 'maxlength': 500, 'value': value, 'placeholder': '192.168.7.0/24' }) ]),
			' ', E('small', {}, [ _('Those of a branch, which all other clients reach') ])
		]);
	},

	handleNetworks: function(server, peer, ev) {
		const name = (peer.name != '-') ? peer.name : peer.id;
		const behind = this.networks(peer.behind.join(' '));

		this.ask(_('Networks behind %s').format(name), [ behind ], _('Set'), L.bind(function() {
			return tools.setPeer(server, name, behind.querySelector('input').value).then(L.bind(function(said) {
				ui.hideModal();
				ui.addNotification(null, E('p', {}, [ tools.said([ said.said, said.note ].filter(Boolean).join(' ')) ]));

				return this.refreshPeers();
			}, this));
		}, this));
	},

	handleAdd: function(server, ev) {
		const behind = this.networks('');
		const name = E('input', { 'type': 'text', 'class': 'cbi-input-text', 'id': 'millrace-peer-name', 'maxlength': 63 });
		const lan = E('input', { 'type': 'checkbox', 'id': 'millrace-peer-lan' });

		this.ask(_('Add a client'), [
			E('p', {}, [ E('label', {}, [ _('Name'), ' ', name ]), ' ', E('small', {}, [ _('Letters, digits, “-”, “_” and “.”') ]) ]),
			E('p', {}, [ E('label', {}, [ lan, ' ', _('Only its traffic to the networks at home uses the tunnel') ]) ]),
			behind
		], _('Make its keys'), L.bind(function() {
			return tools.addPeer(server, name.value, lan.checked, behind.querySelector('input').value).then(L.bind(this.showAdded, this));
		}, this));
	},

	/* The file is nowhere but here: the router keeps no private key of a client. */
	showAdded: function(added) {
		const link = E('a', {
			'class': 'btn',
			'download': added.name + added.ending,
			'href': URL.createObjectURL(new Blob([ added.file ], { type: 'text/plain' }))
		}, [ _('Save the file') ]);

		ui.showModal(_('Client %s').format(added.name), [
			E('p', {}, [ _('This is shown only once, as its private key is stored nowhere else. Scan the code with the client\'s app, or save the file and send it over a confidential channel.') ]),
			added.note ? E('p', {}, [ tools.said(added.note) ]) : '',
			added.qr ? tools.code(added.qr) : E('p', {}, [ _('The file is too long for a QR code that a camera can read.') ]),
			E('div', { 'class': 'right' }, [
				link, ' ',
				E('button', {
					'class': 'btn',
					'click': ui.createHandlerFn(this, function() {
						URL.revokeObjectURL(link.href);
						ui.hideModal();

						return this.refreshPeers();
					})
				}, [ _('Done') ])
			])
		]);
	},

	handleRevoke: function(server, peer, ev) {
		const name = (peer.name != '-') ? peer.name : peer.id;

		ui.showModal(_('Revoke %s?').format(name), [
			E('p', {}, [ _('Its session ends at once, and its file no longer works. To let it connect again, add a new client.') ]),
			E('div', { 'class': 'right' }, [
				E('button', { 'class': 'btn', 'click': ui.hideModal }, [ _('Cancel') ]), ' ',
				E('button', {
					'class': 'btn cbi-button-negative important',
					'click': ui.createHandlerFn(this, function() {
						return tools.revokePeer(server, name).catch(L.bind(this.fail, this)).then(L.bind(function() {
							ui.hideModal();

							return this.refreshPeers();
						}, this));
					})
				}, [ _('Revoke') ])
			])
		]);
	},

	renderHome: function(home) {
		const make = E('button', { 'class': 'btn millrace-init', 'click': ui.createHandlerFn(this, 'handleServer') }, [ _('Make a server at home') ]);

		if (!home.servers.length)
			return [ E('p', {}, [ _('There is no server at home.') ]), E('p', {}, [ make ]) ];

		return home.servers.map(L.bind(this.renderServer, this)).concat([ E('p', {}, [ make ]) ]);
	},

	renderServer: function(it) {
		const button = L.bind(function(kind, handler, peer, words) {
			return E('button', { 'class': 'btn ' + kind, 'click': ui.createHandlerFn(this, handler, it.server, peer) }, [ words ]);
		}, this);

		return E('div', { 'class': 'millrace-server', 'data-server': it.server }, [
			E('p', {}, [ it.server ]),
			it.error ? warning(it.error) : '',
			table([ _('Client'), _('Details'), '' ], it.peers.map(function(peer) {
				return [
					peer.name,
					about(peer),
					peer.revoked ? label('notice', _('revoked')) : [
						button('millrace-networks', 'handleNetworks', peer, _('Networks')), ' ',
						button('millrace-rename', 'handleRename', peer, _('Rename')), ' ',
						button('cbi-button-negative', 'handleRevoke', peer, _('Revoke'))
					]
				];
			})),
			E('p', {}, [
				E('button', { 'class': 'btn cbi-button-add', 'click': ui.createHandlerFn(this, 'handleAdd', it.server) }, [ _('Add a client') ])
			])
		]);
	},

	render: function(data) {
		const page = this;
		const live = E('div', { 'id': 'millrace-live' }, renderStatus(page, data[0]));

		poll.add(function() {
			return tools.status().then(function(status) {
				dom.content(live, renderStatus(page, status));
			}, function(error) {
				dom.content(live, warning(error.message));
			});
		}, 3);

		return E('div', { 'class': 'millrace-page' }, [
			E('style', {}, [ STYLE ]),
			E('h2', {}, [ _('Tunnels') ]),
			live,
			E('div', { 'class': 'cbi-section' }, [
				E('h3', {}, [ _('Server at home') ]),
				E('div', { 'id': 'millrace-home' }, this.renderHome(data[1]))
			])
		]);
	},

	handleSaveApply: null,
	handleSave: null,
	handleReset: null
});
