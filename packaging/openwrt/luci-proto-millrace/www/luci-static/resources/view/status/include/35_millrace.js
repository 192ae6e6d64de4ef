'use strict';
'require baseclass';
'require tools.millrace as tools';

return baseclass.extend({
	title: _('Tunnels'),

	histories: {},

	load: function() {
		return L.resolveDefault(tools.status(), null);
	},

	render: function(status) {
		if (!status || (!status.tunnels.length && !status.interfaces.length && !status.guard))
			return null;

		const histories = this.histories;
		const names = {};

		status.interfaces.forEach(function(it) {
			names[it.device] = it.interface;
		});

		const row = function(name, state, rates) {
			return E('tr', { 'class': 'tr' }, [
				E('td', { 'class': 'td left' }, [ E('strong', {}, [ name ]) ]),
				E('td', { 'class': 'td left' }, [ E('span', { 'class': 'label ' + state[0] }, [ state[1] ]) ]),
				E('td', { 'class': 'td left' }, [ rates ])
			]);
		};

		const rows = status.tunnels.map(function(tunnel) {
			const history = histories[tunnel.interface] || (histories[tunnel.interface] = { values: [] });
			const rates = tools.sample(history, tunnel);

			return row(names[tunnel.interface] || tunnel.interface, tools.state(tunnel),
				_('%s received, %s sent').format(tools.rate(rates[0]), tools.rate(rates[1])));
		});

		status.interfaces.forEach(function(it) {
			const runs = status.tunnels.some(function(tunnel) {
				return tunnel.interface == it.device;
			});

			if (!runs)
				rows.push(row(it.interface, [ 'notice', tools.down(it) ], (it.faults || []).map(function(fault) {
					return tools.faultTitle(fault.code);
				}).join('; ')));
		});

		if (status.guard)
			rows.push(row(_('Guard'), [ status.guard.whole ? 'success' : 'warning', tools.stateName(status.guard.state) ],
				status.guard.lan ? status.guard.lan.join(', ') : ''));

		return E('div', { 'class': 'millrace-overview' }, [
			E('table', { 'class': 'table' }, rows),
			E('a', { 'href': L.url('admin/status/millrace') }, [ _('Peers, uplinks and rates') ])
		]);
	}
});
