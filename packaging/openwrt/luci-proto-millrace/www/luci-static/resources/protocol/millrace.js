'use strict';
'require ui';
'require dom';
'require uci';
'require form';
'require network';
'require tools.millrace as tools';

/* What the web server takes in one request leaves so many bytes for a file. */
const SIZE_MAX = 45000;

/* Options of the interface that an imported file sets, or empties; and those that it sets only. */
const IMPORTED = [ 'private_key', 'listen_port', 'addresses', 'mtu', 'fwmark', 'dns', 'dns_search' ];
const IMPORTED_IF_THERE = [ 'ip4table', 'ip6table', 'peerdns' ];

function validateKey(section_id, value) {
	if (value == null || value == '' || value.match(/^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$/))
		return true;

	return _('Not a key; a key has 44 base64 characters');
}

function validatePath(section_id, value) {
	if (value == null || value == '' || value.match(/^\/[^\n]+$/))
		return true;

	return _('Not an absolute path');
}

function validateMark(section_id, value) {
	if (value == null || value == '' || value.match(/^(0x[0-9a-fA-F]{1,8}|[0-9]{1,10})$/))
		return true;

	return _('Not a 32-bit number');
}

/* A number, or a range a-b, as a list of both ends; null for anything else. */
function rangeOf(value, most) {
	const found = String(value).match(/^(\d{1,10})(?:-(\d{1,10}))?$/);

	if (!found)
		return null;

	const range = [ +found[1], +(found[2] || found[1]) ];

	return (range[0] <= range[1] && range[1] <= most) ? range : null;
}

function validateRange(most) {
	return function(section_id, value) {
		if (value == null || value == '' || rangeOf(value, most))
			return true;

		return _('Not a number or a range such as 10-20, at most %d').format(most);
	};
}

/* The value of an option of AmneziaWG in the form. */
function valueOf(option, section_id, name) {
	return option.section.getOption(name).formvalue(section_id);
}

/* Message types, which must not overlap. An empty field has WireGuard's own type. */
function validateType(section_id, value) {
	const most = 0xffffffff;
	const fault = validateRange(most)(section_id, value);

	if (fault !== true)
		return fault;

	const range = (name, value) => rangeOf(value || name.slice(-1), most);
	const own = range(this.option, value);

	for (let name of [ 'awg_h1', 'awg_h2', 'awg_h3', 'awg_h4' ]) {
		const other = (name != this.option) ? range(name, valueOf(this, section_id, name)) : null;

		if (other && own[0] <= other[1] && other[0] <= own[1])
			return _('H1 to H4 must not overlap; empty ones are 1 to 4');
	}

	return true;
}

function validateTags(section_id, value) {
	if (value == null || value == '' || value.match(/^([^<>]*<\s*(b|r|rc|rd|t|c|d|ds|dz|wt)(\s[^<>]*)?>)+[^<>]*$/))
		return true;

	return _('Not made of tags such as %s').format('<b 0xc0ffee>, <r 16>, <rc 8>, <rd 8>, <t>, <c>');
}

function validateHeaderKey(section_id, value) {
	const isShort = (name) => +valueOf(this, section_id, name) < 12;

	if (value && [ 'awg_s1', 'awg_s2', 'awg_s3', 'awg_s4' ].some(isShort))
		return _('With this key, S1 to S4 must be at least 12');

	return validateKey(section_id, value);
}

/* AmneziaWG's settings by their names in files: type or check of the value, and description. Values of the shared ones are
   equal at both ends. */
function amneziaSettings() {
	const number = (most) => ({ datatype: 'and(uinteger,max(%d))'.format(most) });
	const range = { validate: validateRange(65535) };
	const shared = (words) => words + ' ' + _('Equal at both ends.');
	const settings = [
		[ 'Jc', number(128), _('Number of random packets before each handshake.') ],
		[ 'Jmin', number(65507), _('Least length of a random packet, in bytes.') ],
		[ 'Jmax', number(65507), _('Greatest length of a random packet, in bytes.') ],
		[ 'S1', number(1280), shared(_('Random bytes in front of a handshake start.')) ],
		[ 'S2', number(1280), shared(_('Random bytes in front of a handshake answer.')) ],
		[ 'S3', number(1280), shared(_('Random bytes in front of a cookie.')) ],
		[ 'S4', number(1280), shared(_('Random bytes in front of a data packet.')) ]
	];

	for (let i = 1; i <= 4; i++)
		settings.push([ 'H' + i, { validate: validateType, placeholder: String(i) }, shared(_('Number or range in place of message type %d.').format(i)) ]);

	for (let i = 1; i <= 5; i++)
		settings.push([ 'I' + i, { validate: validateTags }, _('Packet %d that imitates another protocol, in tags such as %s').format(i, '<b 0xc0ffee><t><r 16>') ]);

	for (let i = 1; i <= 3; i++)
		settings.push([ 'J' + i, { validate: validateTags }, _('Packet %d of generation 1.5, until Itime has passed.').format(i) ]);

	return settings.concat([
		[ 'Itime', number(0xffffffff), _('Seconds between packets I1 to I5 of generation 1.5.') ],
		[ 'HeaderProtectionKey', { password: true, validate: validateHeaderKey }, shared(_('Hides message types and numbers; needs S1 to S4 of at least 12.')) ],
		[ 'ContentPaddingAddition', range, _('Bytes of padding in data packets.') ],
		[ 'RekeyAfterTime', range, _('Seconds until keys are renewed.') ],
		[ 'RekeyTimeout', range, _('Seconds until a handshake is tried again.') ],
		[ 'RejectAfterTime', range, _('Seconds until keys expire.') ],
		[ 'KeepaliveTimeout', range, _('Seconds until a received packet is answered by an empty one.') ],
		[ 'MaxHandshakeAttempts', range, _('Handshakes that are tried in a row.') ],
		[ 'RandomTrailers', null, shared(_('Random bytes behind handshake messages.')) ],
		[ 'DisableCookies', null, _('Under load, sources are limited by rate, and no cookies are sent.') ]
	]);
}

/* The option for a setting: awg_header_protection_key. */
function amneziaOption(setting) {
	return 'awg_' + setting.replace(/\B[A-Z]/g, '_$&').toLowerCase();
}

/* Offers the other interfaces. */
function loadNetworks(section_id) {
	return network.getNetworks().then(L.bind(function(networks) {
		networks.forEach(L.bind(function(net) {
			const name = net.getName();

			if (name != 'loopback' && name != section_id)
				this.value(name);
		}, this));

		return form.DynamicList.prototype.load.apply(this, [ section_id ]);
	}, this));
}

/* One button, one place: any file of a tunnel is dropped, chosen or pasted here, and judged before anything is set. */
const Import = form.DummyValue.extend({
	renderWidget: function(section_id, option_index, cfgvalue) {
		const text = E('textarea', {
			'class': 'millrace-text',
			'rows': 4,
			'style': 'width:100%',
			'placeholder': _('Drop a file here, or paste its text, a vpn:// link, or the text of a QR code'),
			'spellcheck': 'false',
			'autocomplete': 'off'
		});
		const file = E('input', { 'type': 'file', 'class': 'millrace-file', 'style': 'max-width:100%', 'accept': '.conf,.ovpn,.toml,.txt,.vpn,text/plain' });
		const found = E('div', { 'class': 'millrace-found' });
		const panel = E('div', { 'class': 'millrace-import', 'style': 'display:none;max-width:50em' }, [
			text,
			E('p', {}, [ file ]),
			E('p', {}, [
				E('button', {
					'class': 'btn cbi-button-action millrace-check',
					'click': ui.createHandlerFn(this, function() {
						if (text.value.trim() == '')
							return dom.content(found, tools.warning(_('Paste the text first.')));

						return this.look(section_id, found, '', new TextEncoder().encode(text.value));
					})
				}, [ _('Check the text') ])
			]),
			found
		]);

		const take = L.bind(function(it) {
			if (!it)
				return;

			if (it.size > SIZE_MAX) {
				dom.content(found, tools.warning(_('%s has %d bytes, but the web server accepts at most %d. Run this on the router\'s shell: %s')
					.format(it.name, it.size, SIZE_MAX, 'millrace import FILE')));
				return;
			}

			const reader = new FileReader();

			/* Bytes, and not text: what has happened to them on the way is for the program to tell. */
			reader.onload = L.bind(function() {
				this.look(section_id, found, it.name, new Uint8Array(reader.result));
			}, this);
			reader.onerror = L.bind(function() {
				dom.content(found, tools.warning(_('%s cannot be read.').format(it.name)));
			}, this);
			reader.readAsArrayBuffer(it);
		}, this);

		file.addEventListener('change', function() {
			take(file.files[0]);
			file.value = '';
		});

		panel.addEventListener('dragover', function(ev) {
			ev.preventDefault();
			ev.dataTransfer.dropEffect = 'copy';
		});

		panel.addEventListener('drop', function(ev) {
			ev.preventDefault();
			ev.stopPropagation();

			if (ev.dataTransfer.files.length)
				take(ev.dataTransfer.files[0]);
			else
				text.value = ev.dataTransfer.getData('text');
		});

		return E('div', {}, [
			E('button', {
				'class': 'btn cbi-button-action millrace-open',
				'click': function(ev) {
					ev.preventDefault();
					panel.style.display = (panel.style.display == 'none') ? '' : 'none';
				}
			}, [ _('Import a file…') ]),
			panel
		]);
	},

	/* Asks the program what it says of the file. */
	look: function(section_id, found, name, bytes) {
		const data = tools.toBase64(bytes);

		dom.content(found, E('em', { 'class': 'spinning' }, [ _('Checking…') ]));

		return tools.check(section_id, name, data).then(L.bind(function(answer) {
			dom.content(found, answer.damage
				? this.renderDamage(section_id, found, name, answer)
				: this.renderReport(section_id, found, name, data, answer));
		}, this), function(error) {
			dom.content(found, tools.warning(tools.said(error.message)));
		});
	},

	renderDamage: function(section_id, found, name, answer) {
		const parts = [
			E('p', {}, [ E('strong', {}, [ _('This file is damaged and cannot be used:') ]) ]),
			E('ul', {}, answer.damage.map(function(words) {
				return E('li', {}, [ tools.said(words) ]);
			}))
		];

		if (answer.mended != null)
			parts.push(E('button', {
				'class': 'btn cbi-button-action millrace-mend',
				'click': ui.createHandlerFn(this, 'look', section_id, found, name, tools.fromBase64(answer.mended))
			}, [ _('Repair it, and check again') ]));
		else
			parts.push(E('p', {}, [ _('Download the file again.') ]));

		return E('div', { 'class': 'alert-message warning millrace-damage' }, parts);
	},

	renderReport: function(section_id, found, name, data, answer) {
		const report = answer.report;
		const kinds = { wireguard: 'WireGuard', openvpn: 'OpenVPN', pptp: 'PPTP', relay: _('relay') };
		const labels = { honoured: 'success', ignored: 'notice', refused: 'danger' };
		const words = { honoured: _('honoured'), ignored: _('ignored'), refused: _('refused') };
		const shown = report.lines.filter(function(line) {
			return line.verdict != 'honoured' || line.reason != '';
		});
		const there = uci.sections('network', 'millrace_' + section_id).length;

		const parts = [
			E('p', {}, [
				E('strong', {}, [ kinds[answer.kind] || answer.kind ]), ': ',
				_('%d lines honoured, %d ignored, %d refused').format(report.honoured, report.ignored, report.refused)
			])
		];

		report.warnings.forEach(function(warning) {
			parts.push(tools.warning(tools.said(warning)));
		});

		if (shown.length)
			parts.push(E('table', { 'class': 'table millrace-lines' }, shown.map(function(line) {
				return E('tr', { 'class': 'tr' }, [
					E('td', { 'class': 'td' }, [ line.line ? String(line.line) : '' ]),
					E('td', { 'class': 'td' }, [ E('span', { 'class': 'label ' + labels[line.verdict] }, [ words[line.verdict] ]) ]),
					E('td', { 'class': 'td' }, [ E('code', {}, [ line.key ]) ]),
					E('td', { 'class': 'td', 'style': 'overflow-wrap:anywhere' }, [ tools.said(line.reason) ])
				]);
			})));

		if (!report.usable) {
			parts.push(tools.warning(_('No tunnel can be made from this file, so it is not used.')));
			return E('div', { 'class': 'millrace-report' }, parts);
		}

		if (answer.options)
			parts.push(E('p', {}, [ N_(answer.options.peers.length,
				'It becomes options of this interface and %d peer.',
				'It becomes options of this interface and %d peers.').format(answer.options.peers.length) ]));
		else
			parts.push(E('p', {}, [ _('It is saved as a file on the router that only root can read, and this interface uses it.') ]));

		if (report.refused && !answer.options)
			parts.push(tools.warning(_('Refused lines are removed from it.')));

		if (there || uci.get('network', section_id, 'private_key') || uci.get('network', section_id, 'config_file'))
			parts.push(tools.warning(N_(there,
				'It replaces this interface\'s present configuration, with %d peer.',
				'It replaces this interface\'s present configuration, with %d peers.').format(there)));

		if (answer.gre_rule)
			parts.push(this.renderRule(answer.gre_rule));

		parts.push(E('button', {
			'class': 'btn cbi-button-apply important millrace-use',
			'click': ui.createHandlerFn(this, function() {
				const used = answer.options
					? this.useOptions(section_id, name, answer.options)
					: this.useFile(section_id, name, data, found);

				return Promise.resolve(used).catch(function(error) {
					dom.content(found, tools.warning(tools.said(error.message)));
				});
			})
		}, [ _('Use it') ]));

		return E('div', { 'class': 'millrace-report' }, parts);
	},

	/* A rule of the firewall that the tunnel needs. Saved with the interface if the button is pressed. */
	renderRule: function(rule) {
		const box = E('div', { 'class': 'millrace-rule' }, [
			tools.warning(_('PPTP needs GRE (IP protocol 47), which this router\'s firewall rejects. This rule accepts it:')),
			E('pre', { 'style': 'overflow:auto;tab-size:4' }, [ tools.ruleText(rule) ]),
			E('p', {}, [
				E('button', {
					'class': 'btn cbi-button-add millrace-add-rule',
					'click': ui.createHandlerFn(this, function() {
						return tools.addRule(rule).then(function() {
							dom.content(box.lastElementChild, E('em', {}, [ _('The rule is saved together with the interface.') ]));
						});
					})
				}, [ _('Add this rule') ])
			])
		]);

		return box;
	},

	/* Into the form where it has the option, else past it. */
	setOption: function(section_id, name, value) {
		const option = this.section.getOption(name);
		const element = option ? option.getUIElement(section_id) : null;

		if (element)
			element.setValue(value != null ? value : '');
		else if (value != null)
			uci.set('network', section_id, name, value);
		else
			uci.unset('network', section_id, name);
	},

	removePeers: function(section_id) {
		uci.sections('network', 'millrace_' + section_id).forEach(function(peer) {
			uci.remove('network', peer['.name']);
		});
	},

	useOptions: function(section_id, name, options) {
		this.setOption(section_id, 'config_file', null);

		const amnezia = amneziaSettings().map((it) => amneziaOption(it[0]));

		IMPORTED.concat(amnezia).forEach(L.bind(function(option) {
			this.setOption(section_id, option, options.interface[option]);
		}, this));

		/* Until 24.10 LuCI has search domains only beside this. */
		if (options.interface.dns_search)
			options.interface.peerdns = '0';

		IMPORTED_IF_THERE.forEach(L.bind(function(option) {
			if (options.interface[option] != null)
				this.setOption(section_id, option, options.interface[option]);
		}, this));

		this.removePeers(section_id);

		options.peers.forEach(function(peer) {
			const sid = uci.add('network', 'millrace_' + section_id);

			if (peer.description == null && name != '')
				peer.description = name.replace(/\.[a-z]+$/, '');

			for (let option in peer)
				uci.set('network', sid, option, peer[option]);
		});

		return this.map.save(null, true);
	},

	useFile: function(section_id, name, data, found, replace) {
		return tools.keep(section_id, name, data, !!replace).then(L.bind(function(answer) {
			if (answer.taken != null) {
				dom.content(found, [
					tools.warning(_('The file %s already exists. It will be kept beside the new one, as %s.').format(answer.taken, answer.taken + '.old')),
					E('button', {
						'class': 'btn cbi-button-apply important millrace-replace',
						'click': ui.createHandlerFn(this, 'useFile', section_id, name, data, found, true)
					}, [ _('Use the new one') ])
				]);
				return;
			}

			this.setOption(section_id, 'config_file', answer.path);
			this.removePeers(section_id);

			return this.map.save(null, true);
		}, this));
	}
});

/* A button that makes keys, under the field that takes the private one. */
const Generate = form.DummyValue.extend({
	renderWidget: function(section_id, option_index, cfgvalue) {
		return E('button', {
			'class': 'btn cbi-button-action',
			'click': ui.createHandlerFn(this, function() {
				return tools.generateKeys().then(L.bind(function(keys) {
					this.section.getUIElement(section_id, this.field).setValue(keys[this.made]);
					this.map.checkDepends();
				}, this), function(error) {
					ui.addNotification(null, E('p', {}, [ tools.said(error.message) ]));
				});
			})
		}, [ _('Make a new one') ]);
	}
});

/* Network » Interfaces shows the registered text of an error, without the program's words. */
tools.faultCodes.forEach(function(code) {
	network.registerErrorCode(code, _('%s; see Status » Millrace').format(tools.faultTitle(code)));
});

return network.registerProtocol('millrace', {
	getI18n: function() {
		return _('Millrace (WireGuard, OpenVPN, PPTP)');
	},

	getIfname: function() {
		return this._ubus('l3_device') || tools.deviceName(this.sid);
	},

	/* By this name until LuCI of 2025, and by the other since. */
	getOpkgPackage: function() {
		return 'millrace';
	},

	getPackageName: function() {
		return 'millrace';
	},

	isFloating: function() {
		return true;
	},

	isVirtual: function() {
		return true;
	},

	getDevices: function() {
		return null;
	},

	containsDevice: function(ifname) {
		return (network.getIfnameOf(ifname) == this.getIfname());
	},

	renderFormOptions: function(s) {
		let o;

		/* They are there already when the protocol was chosen a second time. */
		try {
			s.tab('peers', _('Peers'));
			s.tab('uplinks', _('Uplinks and routing'));
			s.tab('amneziawg', 'AmneziaWG', _('WireGuard with packets that filters do not know. Leave all fields empty for plain WireGuard.'));
		}
		catch (e) {}

		/* -- general -- */

		o = s.taboption('general', Import, '_import', _('Import'),
			_('A .conf file of WireGuard, .ovpn of OpenVPN or .toml of PPTP. Its contents are shown before anything is set.'));

		o = s.taboption('general', form.Value, 'config_file', _('File'),
			_('The tunnel\'s file on the router. Leave empty to enter keys and peers here.'));
		o.placeholder = '/etc/millrace/%s.ovpn'.format(s.section);
		o.validate = validatePath;

		o = s.taboption('general', form.Flag, 'allow_files', _('The file may use other files'),
			_('It may write files, send files to the other end (passwords), read files as parts of itself, and open command sockets. Only for your own files, not for a provider\'s.'));
		o.depends({ config_file: '', '!reverse': true });

		o = s.taboption('general', form.Value, 'private_key', _('Private key'), _('WireGuard private key in base64.'));
		o.password = true;
		o.validate = validateKey;
		o.rmempty = false;
		o.depends('config_file', '');

		o = s.taboption('general', Generate, '_generate', ' ');
		o.field = 'private_key';
		o.made = 'private_key';
		o.depends('config_file', '');

		o = s.taboption('general', form.DummyValue, '_public_key', _('Public key'), _('For the other end.'));
		o.depends('config_file', '');
		o.load = function(section_id) {
			const key = uci.get('network', section_id, 'private_key');

			if (!key)
				return _('No key yet.');

			return tools.publicKey(key).then(function(answer) {
				return answer.public_key;
			}, function(error) {
				return _('It cannot be computed: %s').format(error.message);
			});
		};

		o = s.taboption('general', form.DynamicList, 'addresses', _('Addresses'), _('Addresses inside the tunnel, with prefix lengths.'));
		o.datatype = 'ipaddr';
		o.placeholder = '10.8.0.2/32';
		o.depends('config_file', '');

		o = s.taboption('general', form.Value, 'listen_port', _('UDP port'), _('Leave empty to let the kernel choose one.'));
		o.datatype = 'port';
		o.depends('config_file', '');

		/* -- peers -- */

		o = s.taboption('peers', form.SectionValue, '_peers', form.GridSection, 'millrace_%s'.format(s.section));
		o.depends('config_file', '');

		this.renderPeerOptions(o.subsection);

		/* -- uplinks and routing -- */

		o = s.taboption('uplinks', form.DynamicList, 'uplink', _('Uplinks'),
			_('Interfaces that the tunnel uses, the preferred first. Leave empty to use the router\'s routes.'));
		o.load = loadNetworks;

		o = s.taboption('uplinks', form.DynamicList, 'only_through', _('Only through this tunnel'),
			_('LAN interfaces or network devices whose traffic uses this tunnel or is blocked, from boot on. They still reach the router and each other.'));
		o.load = loadNetworks;

		o = s.taboption('uplinks', form.ListValue, 'mode', _('Use of uplinks'));
		o.value('', _('default: one, and the next when it fails'));
		o.value('failover', _('one, and the next when it fails'));
		o.value('single', _('always the same one'));
		o.value('duplicate', _('each packet through all'));
		o.value('critical', _('important packets through all'));
		o.value('balance', _('connections spread over all'));
		o.value('balance-packets', _('packets spread over all'));
		o.optional = true;

		o = s.taboption('uplinks', form.Flag, 'hostroute', _('Route outside the tunnel'),
			_('Keeps the tunnel\'s own packets outside the tunnel if no uplinks are set.'));
		o.default = o.enabled;

		o = s.taboption('uplinks', form.Flag, 'peerdns', _('Use the other end\'s name servers'));
		o.default = o.enabled;

		/* -- AmneziaWG -- */

		amneziaSettings().forEach(function(it) {
			o = s.taboption('amneziawg', it[1] ? form.Value : form.Flag, amneziaOption(it[0]), it[0], it[2]);
			Object.assign(o, it[1]);
			o.depends('config_file', '');
		});

		/* -- advanced -- */

		o = s.taboption('advanced', form.Value, 'mtu', _('MTU'), _('For WireGuard and PPTP. Leave empty to let WireGuard\'s follow the path to the peers.'));
		o.datatype = 'range(68,65535)';

		o = s.taboption('advanced', form.DynamicList, 'ip6prefix', _('Prefixes to hand out'),
			_('IPv6 prefixes that the other end routes here; other interfaces get networks from them.'));
		o.datatype = 'cidr6';

		o = s.taboption('advanced', form.Value, 'fwmark', _('Firewall mark'), _('For the tunnel\'s own packets.'));
		o.validate = validateMark;
		o.depends('config_file', '');

		o = s.taboption('advanced', form.Flag, 'authfail', _('Stop at refused credentials'),
			_('Otherwise the login is retried each minute, for which servers may lock the account.'));
		o.default = o.enabled;
	},

	renderPeerOptions: function(ss) {
		let o;

		ss.anonymous = true;
		ss.addremove = true;
		ss.nodescriptions = true;
		ss.sortable = true;
		ss.addbtntitle = _('Add a peer');
		ss.modaltitle = _('Peer');

		o = ss.option(form.Flag, 'disabled', _('Disabled'));
		o.modalonly = true;

		o = ss.option(form.Value, 'description', _('Name'));
		o.placeholder = _('Untitled peer');

		o = ss.option(form.Value, 'public_key', _('Public key'));
		o.validate = validateKey;
		o.rmempty = false;
		o.modalonly = true;

		o = ss.option(form.Value, 'preshared_key', _('Preshared key'), _('A second secret that both ends share.'));
		o.password = true;
		o.validate = validateKey;
		o.modalonly = true;

		o = ss.option(Generate, '_generate', ' ');
		o.field = 'preshared_key';
		o.made = 'preshared_key';
		o.modalonly = true;

		o = ss.option(form.DynamicList, 'allowed_ips', _('Its addresses'), _('Addresses from which it may send, and which are routed to it.'));
		o.datatype = 'ipaddr';
		o.placeholder = '0.0.0.0/0';

		o = ss.option(form.Flag, 'route_allowed_ips', _('Routes to them'), _('Sets routes to its addresses.'));
		o.modalonly = true;

		o = ss.option(form.Value, 'endpoint_host', _('Endpoint'), _('Name or address. Leave empty if the peer connects to this router.'));
		o.datatype = 'host';
		o.placeholder = 'vpn.example.org';

		o = ss.option(form.Value, 'endpoint_port', _('Port'));
		o.datatype = 'port';
		o.placeholder = '51820';

		o = ss.option(form.Value, 'persistent_keepalive', _('Keepalive'), _('Seconds between packets that keep a NAT mapping open; 25 is usual.'));
		o.validate = validateRange(65535);
		o.placeholder = '0';
		o.modalonly = true;
	},

	deleteConfiguration: function() {
		uci.sections('network', 'millrace_%s'.format(this.sid), function(peer) {
			uci.remove('network', peer['.name']);
		});
	}
});
