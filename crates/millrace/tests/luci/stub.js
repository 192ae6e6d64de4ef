'use strict';

/* As much of LuCI as the pages of Millrace use, for tests: modules, elements, rpc over ubus, uci without a router, forms that
   know dependencies and validation. It follows what LuCI's reference says of these functions, and shares no code with it. */

const modules = {};
const errors = window.stubErrors = [];

window._ = (words) => words;
window.N_ = (count, one, many) => (count == 1 ? one : many);

/* Translates the pages, as LuCI does with the compiled file. `pseudo` puts each text into brackets, so that texts without a
   translation stand out. */
async function speak(language) {
	document.documentElement.lang = language;

	if (language == 'pseudo') {
		window._ = (words) => '⟦' + words + '⟧';
		window.N_ = (count, one, many) => _(count == 1 ? one : many);
	}

	if (language == 'pseudo' || language == 'en')
		return;

	const texts = {};
	let form;

	for (const part of (await (await fetch('/po/' + language + '/millrace.po')).text()).split('\n\n')) {
		const found = {};
		let field;

		for (const [ , name, text ] of part.matchAll(/^(msg\S+)? ?(".*")$/gm)) {
			field = name || field;
			found[field] = (found[field] || '') + JSON.parse(text);
		}

		if (found.msgid)
			texts[found.msgid] = found;
		else
			form = new Function('n', found.msgstr.match(/Plural-Forms: (.*)/)[1] + 'return +plural');
	}

	window._ = (words) => (texts[words] || {}).msgstr || words;
	window.N_ = (count, one) => texts[one]['msgstr[' + form(count) + ']'];
}

/* %s %d %t %f and %m as LuCI has them: %t always has hours, minutes and seconds, and %m leaves numbers up to the base as they
   are, with all their digits. */
String.prototype.format = function(...values) {
	return this.replace(/%(?:%|(\d+)?(?:\.(\d))?([sdtfm]))/g, (all, base, digits, kind) => {
		if (!kind)
			return '%';

		const value = values.shift();

		switch (kind) {
		case 'd':
			return String(Math.floor(+value || 0));

		case 'f':
			return digits ? (+value || 0).toFixed(+digits) : String(+value || 0);

		case 't': {
			const seconds = value || 0, days = Math.floor(seconds / 86400);
			const time = '%dh %dm %ds'.format(seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);

			return days ? days + 'd ' + time : time;
		}

		case 'm': {
			const step = +base || 1000, units = [ ' ', ' K', ' M', ' G', ' T', ' P', ' E' ];
			let number = +value || 0, unit = 0;

			for (; unit < units.length && number > step; unit++)
				number /= step;

			return unit ? number.toFixed(digits ? +digits : 2) + units[unit] + (step == 1024 ? 'i' : '') : number + ' ';
		}

		default:
			return String(value);
		}
	});
};

function append(node, children) {
	/* A bare string is HTML there: text from elsewhere has to stand in a list. */
	if (typeof(children) == 'string')
		node.innerHTML = children;
	else if (Array.isArray(children))
		for (const child of children) {
			/* A list in a list becomes text there, and so does a child that is missing. */
			if (child == null || Array.isArray(child))
				errors.push('LuCI would show this as text: ' + child);

			node.append(child instanceof Node ? child : String(child));
		}
	else if (children instanceof Node)
		node.append(children);
}

window.E = function(name, attributes, children) {
	if (Array.isArray(name)) {
		const fragment = document.createDocumentFragment();
		append(fragment, name);
		return fragment;
	}

	const node = document.createElement(name);

	if (children === undefined && (Array.isArray(attributes) || typeof(attributes) == 'string' || attributes instanceof Node))
		[ attributes, children ] = [ {}, attributes ];

	for (const key in attributes || {})
		if (typeof(attributes[key]) == 'function')
			node.addEventListener(key, attributes[key]);
		else if (attributes[key] != null)
			node.setAttribute(key, attributes[key]);

	append(node, children);

	return node;
};

class Base {
	static extend(properties) {
		const made = class extends this {};
		Object.assign(made.prototype, properties);
		return made;
	}

	super(name, values) {
		return Object.getPrototypeOf(Object.getPrototypeOf(this))[name].apply(this, values);
	}
}

window.L = {
	bind: (work, self, ...given) => work.bind(self, ...given),
	resolveDefault: (promise, usual) => Promise.resolve(promise).catch(() => usual),
	url: (...parts) => '/cgi-bin/luci/' + parts.join('/'),
	resource: (...parts) => '/luci-static/resources/' + parts.join('/'),
	require: load
};

/* A module: its directives, and then the body of a function. */
async function load(name) {
	if (modules[name])
		return modules[name];

	const answer = await fetch(L.resource(name.replace(/\./g, '/') + '.js'));

	if (!answer.ok)
		throw new Error(name + ': ' + answer.status);

	const text = await answer.text();
	const names = [], values = [];

	for (const [ , wanted, , as ] of text.matchAll(/^'require ([\w.]+)( as (\w+))?';$/gm)) {
		names.push(as || wanted);
		values.push(await load(wanted));
	}

	let made = new Function(...names, text)(...values);

	if (typeof(made) == 'function' && made.prototype instanceof Base)
		made = new made();

	return modules[name] = made;
}

modules.baseclass = Base;

modules.dom = {
	append,
	content(node, children) {
		node.replaceChildren();
		append(node, children);
	}
};

/* rpc: one request, or several that are asked for at once in one. */
let waiting = null, number = 0;

async function send(calls) {
	const body = calls.map(({ id, object, method, params }) => (
		{ jsonrpc: '2.0', id, method: 'call', params: [ '0'.repeat(32), object, method, params ] }));

	/* What uhttpd takes. */
	const text = JSON.stringify(body.length == 1 ? body[0] : body);

	if (text.length > 65536)
		throw new Error('a request of ' + text.length + ' bytes');

	const answer = await fetch('/ubus', { method: 'POST', body: text });
	const answers = [].concat(await answer.json());

	for (const call of calls) {
		const found = answers.find((it) => it.id == call.id);

		if (found && found.result && found.result[0] == 0)
			call.resolve(found.result[1] || {});
		else
			call.reject(new Error('ubus: ' + JSON.stringify(found)));
	}
}

modules.rpc = {
	declare: ({ object, method, params, expect, reject }) => (...given) => new Promise((resolve, refuse) => {
		const named = {};

		(params || []).forEach((name, i) => {
			if (given[i] !== undefined)
				named[name] = given[i];
		});

		const usual = expect && expect[''];
		const call = { id: ++number, object, method, params: named, resolve, reject: (error) => (reject ? refuse(error) : resolve(usual)) };

		if (waiting)
			return waiting.push(call);

		waiting = [ call ];
		queueMicrotask(() => {
			const calls = waiting;
			waiting = null;
			send(calls).catch((error) => calls.forEach((it) => it.reject(error)));
		});
	})
};

modules.poll = {
	works: [],
	add(work, seconds) {
		this.works.push([ work, seconds ]);
	}
};

modules.ui = {
	createHandlerFn: (self, work, ...given) => async function(event) {
		const target = event.currentTarget;

		event.preventDefault();
		target.disabled = true;
		try {
			await (typeof(work) == 'function' ? work : self[work]).apply(self, [ ...given, event ]);
		}
		catch (error) {
			errors.push(String(error.stack || error));
		}
		target.disabled = false;
	},
	showModal(title, children) {
		modules.dom.content(document.querySelector('#modal'), E('div', { 'class': 'modal' }, [ E('h4', {}, [ title ]) ].concat(children)));
	},
	hideModal() {
		document.querySelector('#modal').replaceChildren();
	},
	addNotification(title, node) {
		document.querySelector('#notes').append(node);
	},
	/* LuCI's own window with what is saved and not applied yet. */
	changes: {
		async init() {
			this.known = JSON.stringify(modules.uci.saved);
		},
		displayChanges() {
			modules.ui.showModal('changes', [ E('pre', { 'class': 'changes', 'lang': 'en' }, [ this.known ]) ]);
		}
	}
};

/* uci: packages of sections with types and names. Only a package that is loaded can be changed. */
modules.uci = {
	state: {},
	saved: {},
	count: 0,
	async load(conf) {
		this.state[conf] = this.state[conf] || {};
	},
	async save() {
		this.saved = structuredClone(this.state);
	},
	sections(conf, type, each) {
		const found = Object.values(this.state[conf] || {}).filter((it) => !type || it['.type'] == type);
		found.forEach((it) => each && each(it));
		return found;
	},
	get(conf, section, option) {
		const found = (this.state[conf] || {})[section];
		return option ? found && found[option] : found;
	},
	set(conf, section, option, value) {
		if (!this.state[conf][section])
			throw new Error('no section ' + section);
		this.state[conf][section][option] = value;
	},
	unset(conf, section, option) {
		delete this.state[conf][section][option];
	},
	add(conf, type, name) {
		name = name || 'new' + ++this.count;
		this.state[conf][name] = { '.type': type, '.name': name, '.anonymous': name.startsWith('new') };
		return name;
	},
	remove(conf, section) {
		delete this.state[conf][section];
	}
};

window.uciOf = (conf) => modules.uci.state[conf];

const View = Base.extend({});
modules.view = View;

/* network: protocols, and the interfaces of uci. Texts of error codes are kept as LuCI keeps them: a known one is not replaced,
   and the words that an error has besides its code are not shown. */
const protocols = {};
const codes = { NO_DEVICE: 'Network device is not present' };

const Protocol = Base.extend({
	_ubus(field) {
		return this.state ? this.state[field] : null;
	},
	getErrors() {
		const found = (this._ubus('errors') || []).map((it) => codes[it.code] || 'Unknown error (%s)'.format(it.code));
		return found.length ? found : null;
	}
});

modules.network = {
	registerProtocol: (name, properties) => (protocols[name] = Protocol.extend({ getProtocol: () => name, ...properties })),
	registerErrorCode(code, words) {
		if (typeof(code) != 'string' || typeof(words) != 'string' || code in codes)
			return false;

		codes[code] = words;
		return true;
	},
	getNetworks: async () => modules.uci.sections('network', 'interface').map((it) => ({ getName: () => it['.name'] })),
	getIfnameOf: (it) => it
};
