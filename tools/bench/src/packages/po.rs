//! Translation files (`.po`) for LuCI, with what LuCI's own converter understands: messages and plural forms. Contexts,
//! fuzzy messages and line breaks in messages are errors.

use thiserror::Error;

/// Name of the header's field with the number of plural forms, and the formula that chooses one.
const PLURAL_FORMS: &str = "Plural-Forms: ";

/// A translation file, or a template, whose translations are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalog {
    /// The field `Plural-Forms` of the header; empty in a template.
    pub plural_forms: String,
    /// All messages but the header, in the file's order.
    pub messages: Vec<Message>,
}

/// A text of the pages and its translation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// Text of the pages; the singular if there are several forms.
    pub id: String,
    /// The plural of the pages' own language.
    pub plural: Option<String>,
    /// Translation: one text, or one for each plural form.
    pub texts: Vec<String>,
    /// The files that contain the text.
    pub places: Vec<String>,
}

/// Why a file is not a catalogue for LuCI.
#[derive(Debug, Error)]
#[error("line {line}: {fault}")]
pub struct PoError {
    /// Number of the line, from 1.
    pub line: usize,
    /// The fault, as a sentence without an end.
    pub fault: &'static str,
}

impl Catalog {
    /// Reads a file.
    ///
    /// # Errors
    /// With the first line that LuCI's converter would not understand.
    pub fn parse(text: &str) -> Result<Self, PoError> {
        let mut catalog = Self::default();
        let mut message = Message::default();
        // Whether a message begins at the next keyword, and the keyword whose text the next lines continue.
        let (mut is_started, mut field) = (false, Field::None);
        for (number, line) in (1..).zip(text.lines().chain([""])) {
            let fail = |fault| PoError {
                line: number,
                fault,
            };
            let line = line.trim();
            if let Some(place) = line.strip_prefix("#:") {
                message.places.push(place.trim().to_owned());
            } else if line.is_empty() {
                if is_started {
                    let message = std::mem::take(&mut message);
                    catalog.end(message).map_err(fail)?;
                }
                (is_started, field) = (false, Field::None);
            } else if line.starts_with("#,") {
                return Err(fail("has a flag, such as fuzzy"));
            } else if !line.starts_with('#') {
                let (keyword, quoted) = line.split_at(line.find('"').unwrap_or(line.len()));
                match keyword.trim_end() {
                    "" => {}
                    "msgid" if !is_started => (is_started, field) = (true, Field::Id),
                    "msgid_plural" if field == Field::Id => {
                        message.plural = Some(String::new());
                        field = Field::Plural;
                    }
                    "msgstr" if message.plural.is_none() && field == Field::Id => {
                        message.texts.push(String::new());
                        field = Field::Text;
                    }
                    form if form == format!("msgstr[{}]", message.texts.len())
                        && matches!(field, Field::Plural | Field::Text) =>
                    {
                        message.texts.push(String::new());
                        field = Field::Text;
                    }
                    _ => return Err(fail("is not expected here")),
                }
                let text = unquoted(quoted).ok_or_else(|| fail("has no quoted text"))?;
                match field {
                    Field::Id => message.id += &text,
                    Field::Plural => message.plural.get_or_insert_default().push_str(&text),
                    Field::Text => message
                        .texts
                        .last_mut()
                        .into_iter()
                        .for_each(|it| *it += &text),
                    Field::None => return Err(fail("is not expected here")),
                }
            }
        }
        Ok(catalog)
    }

    fn end(&mut self, message: Message) -> Result<(), &'static str> {
        if message.texts.is_empty() {
            return Err("ends a message without a translation");
        }
        if message.id.is_empty() {
            let mut fields = message.texts[0].lines();
            let forms = fields.find_map(|it| it.strip_prefix(PLURAL_FORMS));
            self.plural_forms = forms.unwrap_or_default().to_owned();
            return Ok(());
        }
        // LuCI joins blanks of the text that it looks for, but not those of the file.
        let is_plain = |it: &String| it.split_whitespace().collect::<Vec<_>>().join(" ") == *it;
        if !std::iter::once(&message.id)
            .chain(&message.plural)
            .all(is_plain)
        {
            return Err("ends a text with a line break or needless blanks");
        }
        if self.messages.iter().any(|it| it.id == message.id) {
            return Err("ends a message that the file already has");
        }
        self.messages.push(message);
        Ok(())
    }
}

/// Part of a message that lines continue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    None,
    Id,
    Plural,
    Text,
}

/// The text between quotes, with its escapes resolved.
fn unquoted(quoted: &str) -> Option<String> {
    let mut letters = quoted.strip_prefix('"')?.strip_suffix('"')?.chars();
    let mut text = String::new();
    while let Some(letter) = letters.next() {
        text.push(match letter {
            '"' => return None,
            '\\' => match letters.next()? {
                'n' => '\n',
                it @ ('"' | '\\') => it,
                _ => return None,
            },
            it => it,
        });
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "msgid \"\"\nmsgstr \"\"\n\"Language: ru\\n\"\n\"Plural-Forms: nplurals=3; plural=n;\\n\"\n";

    #[test]
    fn messages_and_plural_forms_are_read() {
        let text = format!(
            "{HEADER}\n#: a.js\n#: b.js\nmsgid \"a \\\"b\\\"\"\nmsgstr \"c\"\n\"\\\\d\"\n\nmsgid \"%d x\"\n\
             msgid_plural \"%d xs\"\nmsgstr[0] \"0\"\nmsgstr[1] \"1\"\n"
        );
        let catalog = Catalog::parse(&text).unwrap();
        assert_eq!(catalog.plural_forms, "nplurals=3; plural=n;");
        let text = |it: &str| it.to_owned();
        let expected = [
            Message {
                id: text("a \"b\""),
                texts: vec![text("c\\d")],
                places: vec![text("a.js"), text("b.js")],
                ..Message::default()
            },
            Message {
                id: text("%d x"),
                plural: Some(text("%d xs")),
                texts: vec![text("0"), text("1")],
                ..Message::default()
            },
        ];
        assert_eq!(catalog.messages, expected);
    }

    #[test]
    fn files_that_luci_would_misread_are_errors() {
        for (text, line) in [
            ("msgctxt \"a\"\nmsgid \"b\"\nmsgstr \"\"\n", 1),
            ("#, fuzzy\nmsgid \"b\"\nmsgstr \"\"\n", 1),
            ("msgid \"b\"\n\nmsgid \"c\"\nmsgstr \"\"\n", 2),
            ("msgid \"b\"\nmsgstr \"\"\nmsgid \"c\"\n", 3),
            ("msgid \"b\"\nmsgid_plural \"c\"\nmsgstr \"\"\n", 3),
            ("msgid \"b\"\nmsgid_plural \"c\"\nmsgstr[1] \"\"\n", 3),
            ("msgid \"b\"\nmsgstr[0] \"\"\n", 2),
            ("msgid \"b\\n\"\nmsgstr \"\"\n", 3),
            ("msgid \"b  c\"\nmsgstr \"\"\n", 3),
            ("msgid \"b\"\nmsgstr \"\"\n\nmsgid \"b\"\nmsgstr \"\"\n", 6),
            ("msgid \"b\"c\"\nmsgstr \"\"\n", 1),
            ("msgid b\n", 1),
            ("\"b\"\n", 1),
        ] {
            assert_eq!(Catalog::parse(text).unwrap_err().line, line, "{text}");
        }
    }
}
