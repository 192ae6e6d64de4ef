'use strict';

/* Forms of the stub: options of a section in tabs, their dependencies, validation, and saving into uci. Texts of LuCI's own
   have the attribute data-luci. */

class Option extends Base {
	constructor(section, name, title, description) {
		super();
		Object.assign(this, { section, map: section.map, option: name, title, description, deps: [], choices: [], rmempty: true });
	}

	depends(what, value) {
		this.deps.push(typeof(what) == 'string' ? { [what]: value } : what);
	}

	value(key, words) {
		if (!this.choices.some(([ known ]) => known == key))
			this.choices.push([ key, words || key ]);
	}

	load(sid) {
		return modules.uci.get('network', sid, this.option);
	}

	isActive(sid) {
		const fits = (deps) => Object.entries(deps).every(([ name, value ]) => {
			if (name == 'proto')
				return true;
			const other = this.section.getOption(name);
			return other && other.formvalue(sid) == value;
		});
		return !this.deps.length || this.deps.some(fits);
	}

	getUIElement(sid) {
		return this.elements && this.elements[sid];
	}

	formvalue(sid) {
		const element = this.getUIElement(sid);
		return element ? element.getValue() : '';
	}

	fault(sid) {
		const value = this.formvalue(sid);
		const empty = value == null || value.length == 0;
		const words = this.validate ? this.validate(sid, value) : true;
		if (words !== true)
			return words;
		return empty && !this.rmempty ? 'must not be empty' : null;
	}

	parse(sid) {
		if (!this.getUIElement(sid))
			return;
		const value = this.formvalue(sid);
		const active = this.isActive(sid);
		if (active && this.fault(sid))
			throw new TypeError(this.option + ': ' + this.fault(sid));
		if (active && value.length && value != this.default)
			modules.uci.set('network', sid, this.option, value);
		else
			modules.uci.unset('network', sid, this.option);
	}

	async render(sid) {
		const value = await this.load(sid);
		const row = E('div', { 'class': 'cbi-value', 'data-name': this.option }, [
			E('label', {}, [ this.title ]),
			E('div', {}, [ this.renderWidget(sid, 0, value), E('div', {}, [ E('small', {}, [ this.description || '' ]) ]) ])
		]);
		row.addEventListener('change', () => this.map.checkDepends());
		return this.row = row;
	}

	keep(sid, element) {
		this.elements = { ...this.elements, [sid]: element };
	}
}

class Value extends Option {
	renderWidget(sid, index, value) {
		const input = E('input', { 'type': this.password ? 'password' : 'text', 'placeholder': this.placeholder });
		input.value = value == null ? '' : value;
		this.keep(sid, { getValue: () => input.value, setValue: (it) => (input.value = it) });
		return input;
	}
}

class DynamicList extends Option {
	renderWidget(sid, index, value) {
		const input = E('textarea', { 'rows': 2 });
		const set = (it) => (input.value = [].concat(it || []).join('\n'));
		set(value);
		this.keep(sid, { getValue: () => input.value.split(/\s+/).filter(Boolean), setValue: set });
		const words = this.choices.map(([ key ]) => key).join(', ');
		return E('div', {}, [ input, E('small', { 'class': 'choices' }, [ words ]) ]);
	}
}

class ListValue extends Option {
	renderWidget(sid, index, value) {
		const input = E('select', {}, this.choices.map(([ key, words ]) => E('option', { 'value': key }, [ words ])));
		input.value = value == null ? '' : value;
		this.keep(sid, { getValue: () => input.value, setValue: (it) => (input.value = it) });
		return input;
	}
}

class Flag extends Option {
	enabled = '1';

	renderWidget(sid, index, value) {
		const input = E('input', { 'type': 'checkbox' });
		const set = (it) => (input.checked = (it == null || it == '' ? this.default : it) == '1');
		set(value);
		this.keep(sid, { getValue: () => (input.checked ? '1' : '0'), setValue: set });
		return input;
	}

	parse(sid) {
		if (!this.getUIElement(sid))
			return;
		if (this.isActive(sid) && this.formvalue(sid) != (this.default || '0'))
			modules.uci.set('network', sid, this.option, this.formvalue(sid));
		else
			modules.uci.unset('network', sid, this.option);
	}
}

class DummyValue extends Option {
	renderWidget(sid, index, value) {
		return E('output', {}, [ value == null ? '' : value ]);
	}

	parse() {}
}

class Section {
	constructor(map, section) {
		Object.assign(this, { map, section, children: [], tabs: [] });
	}

	tab(name, title) {
		if (this.tabs.some((it) => it.name == name))
			throw new Error('Tab already declared');
		this.tabs.push({ name, title });
	}

	option(Class, name, ...given) {
		const made = new Class(this, name, ...given);
		this.children.push(made);
		return made;
	}

	taboption(tab, Class, ...given) {
		if (!this.tabs.some((it) => it.name == tab))
			throw new Error('no tab ' + tab);
		const made = this.option(Class, ...given);
		made.tab = tab;
		return made;
	}

	getOption(name) {
		return this.children.find((it) => it.option == name);
	}

	getUIElement(sid, name) {
		return this.getOption(name).getUIElement(sid);
	}

	parse() {
		this.children.forEach((it) => it.parse(this.section));
	}
}

/* The sections of a type, one below the other. */
class GridSection extends Section {
	sids() {
		return modules.uci.sections('network', this.section).map((it) => it['.name']);
	}

	parse() {
		this.sids().forEach((sid) => this.children.forEach((it) => it.parse(sid)));
	}

	async render() {
		const parts = [];
		for (const sid of this.sids()) {
			const rows = [];
			for (const option of this.children)
				rows.push(await option.render(sid));
			parts.push(E('div', { 'class': 'cbi-section', 'data-sid': sid }, rows));
		}
		const add = E('button', { 'class': 'add', 'click': () => {
			modules.uci.add('network', this.section);
			this.map.renderContents();
		} }, [ this.addbtntitle ]);
		return E('div', {}, parts.concat(add));
	}
}

class SectionValue extends Option {
	constructor(section, name, Class, ...given) {
		super(section, name, '', '');
		this.subsection = new Class(section.map, ...given);
	}

	async render() {
		return this.row = E('div', { 'data-name': this.option }, [ await this.subsection.render() ]);
	}

	parse(sid) {
		this.subsection.parse();
	}
}

/* The form of one interface, as Network » Interfaces has it. */
class InterfaceMap {
	constructor(sid, node) {
		Object.assign(this, { sid, node, saved: 0 });
	}

	async renderContents() {
		const shown = this.shown || 'general';
		const s = this.section = new Section(this, this.sid);
		[ 'general', 'advanced' ].forEach((name) => s.tab(name, name));
		const protocol = new protocols.millrace();
		protocol.sid = this.sid;
		protocol.renderFormOptions(s);
		const panes = {};
		for (const { name } of s.tabs)
			panes[name] = E('div', { 'class': 'pane', 'data-tab': name });
		for (const option of s.children)
			panes[option.tab].append(await option.render(this.sid));
		const show = (name) => {
			this.shown = name;
			Object.values(panes).forEach((it) => (it.hidden = it.dataset.tab != name));
		};
		const tabs = s.tabs.map((it) => E('button', { 'data-show': it.name, 'data-luci': it.title == it.name ? '' : null, 'click': () => show(it.name) }, [ it.title ]));
		const save = E('button', { 'id': 'save', 'data-luci': '', 'click': () => this.save(null, true).catch((error) => {
			document.querySelector('#notes').textContent = error.message;
		}) }, [ 'Save' ]);
		modules.dom.content(this.node, [ E('h2', { 'data-luci': '' }, [ 'Interfaces » ' + this.sid ]), E('div', { 'class': 'tabs' }, tabs), ...Object.values(panes), save ]);
		show(shown);
		this.checkDepends();
	}

	checkDepends() {
		for (const option of this.section.children)
			option.row.hidden = option.row.style.display = option.isActive(this.sid) ? '' : 'none';
	}

	async save() {
		this.checkDepends();
		this.section.parse();
		await modules.uci.save();
		await this.renderContents();
		this.saved++;
	}
}

modules.form = { Value, DynamicList, ListValue, Flag, DummyValue, SectionValue, GridSection };

/* The page that the address asks for. */
(async () => {
	const asked = new URLSearchParams(location.search), view = document.querySelector('#view');

	await speak(asked.get('lang') || 'en');
	modules.uci.state = await (await fetch('/uci')).json();

	switch (asked.get('page')) {
	case 'status': {
		const page = await load('view.millrace.status');
		view.append(await page.render(await page.load()));
		break;
	}

	case 'overview': {
		const box = await load('view.status.include.35_millrace');
		const draw = async () => modules.dom.content(view, [ E('h3', {}, [ box.title ]), box.render(await box.load()) || 'nothing' ]);
		await draw();
		modules.poll.add(draw, 5);
		break;
	}

	case 'interfaces': {
		await load('protocol.millrace');
		const dump = await modules.rpc.declare({ object: 'network.interface', method: 'dump' })();
		for (const state of dump.interface) {
			const it = new protocols.millrace();
			Object.assign(it, { sid: state.interface, state });
			view.append(E('p', { 'data-interface': it.sid }, [ it.getI18n(), ...(it.getErrors() || []).map((words) => E('div', { 'class': 'error', 'data-luci': words.startsWith('Unknown error') ? '' : null }, [ words ])) ]));
		}
		break;
	}

	default:
		await load('protocol.millrace');
		window.map = new InterfaceMap(asked.get('interface'), view);
		await window.map.renderContents();
	}

	window.stubReady = true;
	/* Faster than a router's, so that tests need not wait. */
	for (const [ work ] of modules.poll.works)
		(async () => {
			for (;;) {
				await work();
				await new Promise((done) => setTimeout(done, 300));
			}
		})();
})().catch((error) => errors.push(String(error.stack || error)));
