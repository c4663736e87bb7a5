//! What the columns of tables are for: as the user says, and guessed where nothing is said.
//!
//! ```toml
//! [[nodes]]
//! file = "papers.parquet"        # or rows = 100 for nodes that only have numbers
//! type = "paper"                 # left out where there is one type
//! id = "paper_id"
//! label = "venue"                # or several of 0 and 1
//! split = "split"
//! features = ["year", "embedding"]
//! categories = ["language"]
//! skip = ["title"]
//!
//! [[edges]]
//! file = "writes.csv.gz"
//! type = "writes"                # or type_column = "relation"
//! source = "author"
//! destination = "paper"
//! source_type = "author"
//! destination_type = "paper"
//! features = ["position"]
//! ```
//!
//! A column that is not named is guessed by its name and by its first rows; features are taken in the order of the
//! columns of the file.

use graphweft_base::{Error, Result};
use serde::{Deserialize, Serialize};

use super::source::{Holds, Source};

/// The tables of a graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Schema {
    /// Columns that are named one by one, of whatever table; they are no part of the text.
    #[serde(skip)]
    pub columns: Vec<ColumnRole>,
    /// Tables of nodes, in the order in which their types are stored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Table>,
    /// Tables of edges.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<Table>,
}

/// What is known of a table; what is empty is guessed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct Table {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// How many nodes there are, where there is no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub of_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_type: Option<String>,
    #[serde(skip_serializing_if = "Names::is_empty")]
    pub id: Names,
    #[serde(skip_serializing_if = "Names::is_empty")]
    pub source: Names,
    #[serde(skip_serializing_if = "Names::is_empty")]
    pub destination: Names,
    #[serde(skip_serializing_if = "Names::is_empty")]
    pub type_column: Names,
    #[serde(skip_serializing_if = "Names::is_empty")]
    pub label: Names,
    #[serde(skip_serializing_if = "Names::is_empty")]
    pub split: Names,
    #[serde(skip_serializing_if = "Names::is_empty")]
    pub features: Names,
    #[serde(skip_serializing_if = "Names::is_empty")]
    pub categories: Names,
    #[serde(skip_serializing_if = "Names::is_empty")]
    pub skip: Names,
}

/// Names of columns; one may be written without brackets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Names(pub Vec<String>);

impl Names {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "the name of a column, or a list of names")]
        enum Given {
            One(String),
            Several(Vec<String>),
        }
        Ok(match Given::deserialize(from)? {
            Given::One(name) => Self(vec![name]),
            Given::Several(names) => Self(names),
        })
    }
}

impl Serialize for Names {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        match &self.0[..] {
            [one] => one.serialize(to),
            several => several.serialize(to),
        }
    }
}

/// What a column is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Id,
    Source,
    Destination,
    Type,
    Label,
    Split,
    Feature,
    Category,
    Skip,
}

/// Words for each: how a user writes it, and how a message does.
const ROLES: [RoleWords; 9] = [
    RoleWords { role: Role::Id, key: "id", word: "the id" },
    RoleWords { role: Role::Source, key: "source", word: "the source" },
    RoleWords { role: Role::Destination, key: "destination", word: "the destination" },
    RoleWords { role: Role::Type, key: "type", word: "the type" },
    RoleWords { role: Role::Label, key: "label", word: "the label" },
    RoleWords { role: Role::Split, key: "split", word: "the split" },
    RoleWords { role: Role::Feature, key: "feature", word: "a feature" },
    RoleWords { role: Role::Category, key: "category", word: "a category" },
    RoleWords { role: Role::Skip, key: "skip", word: "left out" },
];

struct RoleWords {
    role: Role,
    key: &'static str,
    word: &'static str,
}

impl Role {
    fn words(self) -> &'static RoleWords {
        ROLES.iter().find(|words| words.role == self).unwrap_or(&ROLES[0])
    }

    /// As it is written in `NAME=ROLE`.
    pub(super) fn key(self) -> &'static str {
        self.words().key
    }
}

/// A column that a user named: `[TABLE.]NAME=ROLE`.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnRole {
    table: Option<String>,
    name: String,
    role: Role,
}

impl ColumnRole {
    /// Reads that form.
    ///
    /// # Errors
    /// [`Error::Request`] if it is not of that form.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |what: String| {
            let keys: Vec<&str> = ROLES.iter().map(|words| words.key).collect();
            Error::request(what, format!("write [TABLE.]COLUMN=ROLE; roles are {}", keys.join(", ")))
        };
        let Some((column, key)) = text.rsplit_once('=') else {
            return Err(wrong(format!("{text:?} does not say what the column is for")));
        };
        let Some(words) = ROLES.iter().find(|words| words.key == key) else {
            return Err(wrong(format!("{key:?} is nothing that a column can be for")));
        };
        let (table, name) = column.split_once('.').map_or((None, column), |(t, name)| (Some(t.to_string()), name));
        Ok(Self { table, name: name.to_string(), role: words.role })
    }

    /// Whether a table has such a column.
    pub(super) fn fits(&self, table: &Resolved) -> bool {
        self.is_of(&table.table) && table.source.columns.iter().any(|c| c.name.eq_ignore_ascii_case(&self.name))
    }

    /// Whether it is about this table: its type, or its file's name up to the first full stop.
    fn is_of(&self, table: &Table) -> bool {
        let stem = || table.file.rsplit('/').next()?.split('.').next();
        self.table.as_deref().is_none_or(|own| table.of_type.as_deref() == Some(own) || stem() == Some(own))
    }
}

impl std::fmt::Display for ColumnRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let table = self.table.as_ref().map(|table| format!("{table}.")).unwrap_or_default();
        write!(f, "{table}{}={}", self.name, self.role.key())
    }
}

/// Nodes or edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::read) enum Side {
    Nodes,
    Edges,
}

/// How users name columns, for messages.
pub(in crate::read) struct Flags {
    pub(in crate::read) id: &'static str,
    pub(in crate::read) label: &'static str,
    pub(in crate::read) split: &'static str,
    pub(in crate::read) skip: &'static str,
}

/// Those of `import table`.
pub(super) const FLAGS: Flags = Flags {
    id: "--column NAME=id",
    label: "--column NAME=label",
    split: "--column NAME=split",
    skip: "--column NAME=skip",
};

const IDS: &[&str] = &["id", "node", "node_id", "nodeid"];
const LABELS: &[&str] = &["label", "labels", "class", "y", "target"];
const SPLITS: &[&str] = &["split", "set", "subset"];
const SOURCES: &[&str] = &["source", "src", "from", "source_id", "src_id", "head", "subject", "u"];
const DESTINATIONS: &[&str] =
    &["destination", "target", "dst", "dest", "to", "target_id", "dst_id", "tail", "object", "v"];
const TYPES: &[&str] = &["type", "edge_type", "relation", "rel", "predicate"];
/// Columns that must not become features by accident.
const MASKS: &[&str] = &["train", "valid", "val", "test", "train_mask", "valid_mask", "val_mask", "test_mask"];
/// So few words may all be different and still be categories.
const FEW: usize = 16;

/// A table with what each of its columns is for.
pub(in crate::read) struct Resolved {
    pub(super) source: Source,
    pub(super) table: Table,
    pub(super) roles: Vec<Role>,
}

impl Resolved {
    /// The role of every column: as asked for, or by its name, or by what it holds.
    pub(super) fn new(source: Source, table: &Table, side: Side, named: &[ColumnRole], flags: &Flags) -> Result<Self> {
        let mut roles = Roles::new(&source)?;
        if side == Side::Nodes && !source.named {
            let remedy = "name the columns in the first line, e.g. id,x0,x1,label,split; or give the files one by one \
                          with --features, --labels, --train, --valid and --test of import arrays";
            return Err(source.input.bad("line 1", "it has only numbers, expected the names of the columns", remedy));
        }
        for (role, names) in table.given() {
            names.0.iter().try_for_each(|name| roles.assign(name, role))?;
        }
        for column in named.iter().filter(|column| column.is_of(table)) {
            // Without the name of a table, it is for those tables that have such a column.
            if column.table.is_some() || roles.place(&column.name).is_some() {
                roles.assign(&column.name, column.role)?;
            }
        }
        match side {
            Side::Nodes => roles.guess_nodes(table, flags)?,
            Side::Edges => roles.guess_edges(table, flags)?,
        }
        let roles = roles.finish(side, flags)?;
        Ok(Self { source, table: table.clone(), roles })
    }

    pub(super) fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// The columns with this role.
    pub(super) fn with(&self, role: Role) -> Vec<usize> {
        (0..self.roles.len()).filter(|&c| self.roles[c] == role).collect()
    }

    pub(super) fn name(&self, column: usize) -> &str {
        &self.source.columns[column].name
    }

    /// The table with all of its columns named.
    pub(super) fn complete(&self) -> Table {
        let names = |role| Names(self.with(role).into_iter().map(|c| self.name(c).to_string()).collect());
        Table {
            id: names(Role::Id),
            source: names(Role::Source),
            destination: names(Role::Destination),
            type_column: names(Role::Type),
            label: names(Role::Label),
            split: names(Role::Split),
            features: names(Role::Feature),
            categories: names(Role::Category),
            skip: names(Role::Skip),
            ..self.table.clone()
        }
    }

    /// The columns by what they are for, in a line.
    pub(in crate::read) fn describe(&self) -> String {
        let of = |words: &RoleWords| {
            let of = self.with(words.role);
            let name = |c: &usize| self.name(*c);
            Some(match &of[..] {
                [] => return None,
                [first, .., last] if of.len() > 3 => {
                    format!("{}: {} … {} ({})", words.word, name(first), name(last), of.len())
                }
                _ => format!("{}: {}", words.word, of.iter().map(name).collect::<Vec<_>>().join(", ")),
            })
        };
        format!("columns by use: {}", ROLES.iter().filter_map(of).collect::<Vec<_>>().join("; "))
    }
}

impl Table {
    fn given(&self) -> [(Role, &Names); 9] {
        [
            (Role::Skip, &self.skip),
            (Role::Id, &self.id),
            (Role::Source, &self.source),
            (Role::Destination, &self.destination),
            (Role::Type, &self.type_column),
            (Role::Label, &self.label),
            (Role::Split, &self.split),
            (Role::Feature, &self.features),
            (Role::Category, &self.categories),
        ]
    }
}

/// Roles in the making.
struct Roles<'a> {
    source: &'a Source,
    lower: Vec<String>,
    roles: Vec<Option<Role>>,
}

impl<'a> Roles<'a> {
    fn new(source: &'a Source) -> Result<Self> {
        let lower: Vec<String> = source.columns.iter().map(|c| c.name.to_ascii_lowercase()).collect();
        if let Some((at, name)) = lower.iter().enumerate().find(|(at, name)| lower[..*at].contains(name)) {
            let first = lower.iter().position(|other| other == name).map_or(0, |first| first + 1);
            let problem = format!("columns {first} and {} are both called {name:?}", at + 1);
            return Err(source.input.bad("line 1", problem, "give each column a name of its own"));
        }
        let roles = vec![None; lower.len()];
        Ok(Self { source, lower, roles })
    }

    fn bad(&self, problem: String, remedy: impl Into<String>) -> Error {
        self.source.input.bad("line 1", problem, remedy)
    }

    fn name(&self, at: usize) -> &str {
        &self.source.columns[at].name
    }

    fn place(&self, wanted: &str) -> Option<usize> {
        self.lower.iter().position(|name| *name == wanted.to_ascii_lowercase())
    }

    fn assign(&mut self, wanted: &str, role: Role) -> Result<()> {
        let Some(at) = self.place(wanted) else {
            let problem = format!("there is no column {wanted:?}");
            return Err(self.bad(problem, format!("the columns are: {}", self.source.names().join(", "))));
        };
        match self.roles[at].replace(role) {
            Some(other) if other != role => {
                let problem = format!("column {wanted:?} cannot be {} and {}", other.words().word, role.words().word);
                Err(self.bad(problem, "name each column once"))
            }
            _ => Ok(()),
        }
    }

    /// Gives `role` to the column whose name is one of those known for it, unless some column has it.
    fn by_name(&mut self, known: &[&str], role: Role, flag: &str, skip: &str) -> Result<()> {
        if self.roles.contains(&Some(role)) {
            return Ok(());
        }
        let is = |at: &usize| self.roles[*at].is_none() && known.contains(&self.lower[*at].as_str());
        let found: Vec<usize> = (0..self.roles.len()).filter(is).collect();
        match found[..] {
            [] => {}
            [at] => self.roles[at] = Some(role),
            [a, b, ..] => {
                let (first, second, word) = (self.name(a), self.name(b), role.words().word);
                let problem = format!("columns {first:?} and {second:?} could both be {word}");
                return Err(self.bad(problem, format!("say which with {flag}, and leave the other out with {skip}")));
            }
        }
        Ok(())
    }

    fn guess_nodes(&mut self, table: &Table, flags: &Flags) -> Result<()> {
        let own = table.of_type.iter().map(|t| t.to_ascii_lowercase());
        let own: Vec<String> = own.flat_map(|t| [format!("{t}_id"), format!("{t}id"), t]).collect();
        self.by_name(IDS, Role::Id, flags.id, flags.skip)?;
        self.by_name(&own.iter().map(String::as_str).collect::<Vec<_>>(), Role::Id, flags.id, flags.skip)?;
        self.by_name(LABELS, Role::Label, flags.label, flags.skip)?;
        self.by_name(SPLITS, Role::Split, flags.split, flags.skip)?;
        let accident = |at: &usize| self.roles[*at].is_none() && MASKS.contains(&self.lower[*at].as_str());
        if let Some(at) = (0..self.roles.len()).find(accident) {
            let problem = format!("column {:?} looks like a mask, and would become a feature", self.name(at));
            let remedy = format!(
                "write one column \"split\" of train, valid and test, or leave the column out with {}",
                flags.skip
            );
            return Err(self.bad(problem, remedy));
        }
        Ok(())
    }

    /// Without known names, the first two columns are the ends.
    fn guess_edges(&mut self, table: &Table, flags: &Flags) -> Result<()> {
        self.by_name(SOURCES, Role::Source, "--column NAME=source", flags.skip)?;
        self.by_name(DESTINATIONS, Role::Destination, "--column NAME=destination", flags.skip)?;
        for role in [Role::Source, Role::Destination] {
            if !self.roles.contains(&Some(role)) {
                let free = (0..self.roles.len()).find(|&at| self.roles[at].is_none());
                let Some(at) = free else {
                    let problem = format!("there is no column for {} of an edge", role.words().word);
                    return Err(self.bad(problem, "a table of edges has a column for each end"));
                };
                self.roles[at] = Some(role);
            }
        }
        match (&table.of_type, self.roles.iter().position(|role| *role == Some(Role::Type))) {
            (Some(name), Some(at)) => {
                let problem = format!("edges are of type {name:?}, and column {:?} has their types", self.name(at));
                Err(self.bad(problem, "give one of the two"))
            }
            (Some(_), None) => Ok(()),
            (None, _) => self.by_name(TYPES, Role::Type, "--column NAME=type", flags.skip),
        }
    }

    /// The rest by what it holds; refuses roles that this table cannot have, or only once.
    fn finish(self, side: Side, flags: &Flags) -> Result<Vec<Role>> {
        let by_content = |at: usize| match self.source.columns[at].holds {
            Holds::Integers | Holds::Numbers | Holds::List(_) | Holds::Nothing => Role::Feature,
            Holds::Words { different, of } if different <= FEW.max(of / 2) => Role::Category,
            Holds::Words { .. } | Holds::Other(_) => Role::Skip,
        };
        let roles: Vec<Role> =
            (0..self.roles.len()).map(|at| self.roles[at].unwrap_or_else(|| by_content(at))).collect();
        for words in &ROLES {
            let found: Vec<usize> = (0..roles.len()).filter(|&at| roles[at] == words.role).collect();
            let belongs = match words.role {
                Role::Id | Role::Label | Role::Split => side == Side::Nodes,
                Role::Source | Role::Destination | Role::Type => side == Side::Edges,
                Role::Feature | Role::Category | Role::Skip => true,
            };
            if let Some(&at) = found.first().filter(|_| !belongs) {
                let whose = if side == Side::Nodes { "nodes" } else { "edges" };
                let problem =
                    format!("column {:?} cannot be {}: this is a table of {whose}", self.name(at), words.word);
                return Err(self.bad(problem, format!("give it another role, or leave it out with {}", flags.skip)));
            }
            let several = matches!(words.role, Role::Feature | Role::Category | Role::Skip | Role::Label);
            if let [a, b, ..] = found[..]
                && !several
            {
                let problem =
                    format!("columns {:?} and {:?} cannot both be {}", self.name(a), self.name(b), words.word);
                return Err(self.bad(problem, "name one"));
            }
        }
        Ok(roles)
    }
}
