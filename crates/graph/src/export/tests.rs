//! What is exported comes back as it was.

use graphweft_base::ErrorKind;
use graphweft_base::progress::Silent;

use super::*;
use crate::build::{EdgeRules, Scratch};
use crate::csr::SelfLoops;
use crate::dataset::{Categories, DatasetWriter, Task};
use crate::read::tables::{self, Given, Names, Table};
use crate::read::{Context, Imported, Input};

const RULES: EdgeRules =
    EdgeRules { symmetrise: false, merge_parallel: false, self_loops: SelfLoops::Keep, memory: 1 << 20 };

fn stored(dir: &Path, rules: EdgeRules, read: impl FnOnce(&Context<'_>) -> Result<Imported>) -> Dataset {
    let scratch = Scratch::new(std::env::temp_dir());
    let cx = Context { rules, scratch: &scratch, progress: &Silent };
    read(&cx).unwrap().write("made", DatasetWriter::create(dir).unwrap(), &cx).unwrap();
    std::fs::remove_file(dir.join(".validated")).unwrap();
    Dataset::open(dir).unwrap()
}

fn import(dir: &Path, schema: Schema, from: &Path, task: Task) -> Dataset {
    let open = |file: &str| Input::file(from.join(file));
    let given = Given::open(schema, task, &open).unwrap();
    stored(dir, RULES, |cx| tables::read(&given, cx))
}

fn back(dir: &Path, exported: &Path, task: Task) -> Dataset {
    let text = std::fs::read_to_string(exported.join("schema.toml")).unwrap();
    import(dir, toml::from_str(&text).unwrap(), exported, task)
}

fn assert_same(a: &Dataset, b: &Dataset, about: &str) {
    assert!(a.graph().unwrap() == b.graph().unwrap(), "{about}: the graphs differ");
    assert_eq!(a.features(), b.features(), "{about}");
    assert_eq!(a.features_by_type(), b.features_by_type(), "{about}");
    assert_eq!(a.labels(), b.labels(), "{about}");
    assert_eq!(a.edge_features(), b.edge_features(), "{about}");
    assert_eq!(a.edge_types().unwrap(), b.edge_types().unwrap(), "{about}");
    assert_eq!(a.edge_categories(), b.edge_categories(), "{about}");
    assert_eq!(a.categories().map(Categories::values), b.categories().map(Categories::values), "{about}");
    assert_eq!(a.meta(), b.meta(), "{about}");
    let parts = |d: &Dataset| d.splits().iter().map(|s| s.parts().map(|(_, ids)| ids.to_vec())).collect::<Vec<_>>();
    assert_eq!(parts(a), parts(b), "{about}");
    for name in ["nodes.txt", "node_id.npy", "classes.txt"] {
        let bytes = |d: &Dataset| std::fs::read(d.dir().join(name)).ok();
        assert_eq!(bytes(a), bytes(b), "{about}: {name}");
    }
}

const NODES: &str =
    "id,x,z,kind,label,split\nann,1,0.1,2,red,train\n\"b \"\"b\"\", c\",-3e-7,2,0,,valid\n#d,0,0,1,blue,test\n";
const EDGES: &str = "source,target,w,how\nann,#d,1.5,0\n\"b \"\"b\"\", c\",ann,2,3\nann,#d,0,1\n#d,#d,7,0\n";

fn plain(dir: &Path) -> Dataset {
    std::fs::write(dir.join("n.csv"), NODES).unwrap();
    std::fs::write(dir.join("e.csv"), EDGES).unwrap();
    let names = |names: &[&str]| Names(names.iter().map(ToString::to_string).collect());
    let nodes = Table { file: "n.csv".into(), categories: names(&["kind"]), ..Table::default() };
    let edges = Table { file: "e.csv".into(), categories: names(&["how"]), ..Table::default() };
    let schema = Schema { nodes: vec![nodes], edges: vec![edges], ..Schema::default() };
    import(&dir.join("data"), schema, dir, Task::default())
}

fn typed(dir: &Path) -> Dataset {
    std::fs::write(dir.join("a.csv"), "id,h\nx,1\ny,2\n").unwrap();
    std::fs::write(dir.join("p.csv"), "id,label,v,split\n7,1,1 2,train\n8,0,3 4,valid\n9,1,5 6,test\n").unwrap();
    std::fs::write(dir.join("w.csv"), "from,to,w\nx,7,1\ny,9,2\n").unwrap();
    std::fs::write(dir.join("c.csv"), "from,to,w\n7,8,3\n9,9,4\n").unwrap();
    let nodes =
        |of_type: &str, file: &str| Table { of_type: Some(of_type.into()), file: file.into(), ..Table::default() };
    let edges = |of_type: &str, file: &str, from: &str| Table {
        source_type: Some(from.into()),
        destination_type: Some("p".into()),
        ..nodes(of_type, file)
    };
    let schema = Schema {
        nodes: vec![nodes("a", "a.csv"), nodes("p", "p.csv")],
        edges: vec![edges("writes", "w.csv", "a"), edges("cites", "c.csv", "p")],
        ..Schema::default()
    };
    import(&dir.join("data"), schema, dir, Task::default())
}

#[test]
fn tables_come_back_as_they_were() {
    for make in [plain, typed] {
        let dir = tempfile::tempdir().unwrap();
        let data = make(dir.path());
        for format in [Format::Csv, Format::Tsv, Format::Parquet] {
            let out = dir.path().join(format.name());
            write(&data, format, &out, None).unwrap();
            let again = back(&dir.path().join(format!("{}-again", format.name())), &out, Task::default());
            assert_same(&again, &data, format.name());
        }
    }
}

#[test]
fn numbers_to_predict_come_back_too() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("n.csv"), "x,y\n1,0.1\n0,\n3,-7\n").unwrap();
    std::fs::write(dir.path().join("e.csv"), "0 1\n2 0\n").unwrap();
    let table = |file: &str| Table { file: file.into(), ..Table::default() };
    let schema = Schema { nodes: vec![table("n.csv")], edges: vec![table("e.csv")], ..Schema::default() };
    let data = import(&dir.path().join("data"), schema, dir.path(), Task::NodeRegression);
    for format in [Format::Csv, Format::Parquet] {
        let out = dir.path().join(format.name());
        write(&data, format, &out, None).unwrap();
        let again = back(&dir.path().join(format!("{}-again", format.name())), &out, Task::NodeRegression);
        assert_eq!(format!("{:?}", again.labels()), format!("{:?}", data.labels()));
        assert!(again.graph().unwrap() == data.graph().unwrap());
    }
}

#[test]
fn arrays_come_back_as_they_were() {
    use crate::read::arrays::{self, Columns, EdgeNumbers, File};
    let dir = tempfile::tempdir().unwrap();
    let data = plain(dir.path());
    let out = dir.path().join("all.npz");
    write(&data, Format::Npz, &out, None).unwrap();
    let file = |name: &str| File::open(&dir.path().join(format!("all.npz:{name}"))).unwrap();
    let given = arrays::Given {
        edges: file("edge_index"),
        nodes: None,
        columns: Columns::default(),
        features: Some(file("x")),
        labels: Some(file("y")),
        task: Task::default(),
        splits: None,
        parts: ["train_mask", "val_mask", "test_mask"].map(|name| Some(file(name))),
        edge_features: EdgeNumbers::File(file("edge_attr")),
        num_nodes: None,
    };
    let again = stored(&dir.path().join("again"), RULES, |cx| arrays::read(&given, cx));
    assert!(again.graph().unwrap() == data.graph().unwrap());
    assert_eq!((again.features(), again.labels()), (data.features(), data.labels()));
    assert_eq!(again.edge_features(), data.edge_features());
    assert_eq!(again.splits()[0].train, data.splits()[0].train);
}

#[test]
fn metis_comes_back_and_cannot_hold_everything() {
    let dir = tempfile::tempdir().unwrap();
    let data = plain(dir.path());
    let refused = |data: &Dataset| write(data, Format::Metis, &dir.path().join("m"), None).unwrap_err();
    assert!(refused(&data).to_string().contains("node 2 is connected to itself"));
    let text = |text: &str| Input::memory("e", text.as_bytes()).unwrap();
    let list = |name: &str, edges: &str, rules: EdgeRules| {
        let options = crate::read::edge_list::Options::default();
        stored(&dir.path().join(name), rules, |cx| crate::read::edge_list::read(&text(edges), &options, cx))
    };
    let error = refused(&list("one-way", "0 1\n1 2\n", RULES));
    assert!(error.kind() == ErrorKind::Usage && error.to_string().contains("one way only"), "{error}");
    assert!(!dir.path().join("m").exists());
    let both = list("both", "0 1\n1 2\n5 0\n", EdgeRules { symmetrise: true, ..RULES });
    write(&both, Format::Metis, &dir.path().join("m"), None).unwrap();
    let file = Input::file(dir.path().join("m")).unwrap();
    let again = stored(&dir.path().join("again"), RULES, |cx| crate::read::metis::read(&file, cx));
    assert!(again.graph().unwrap() == both.graph().unwrap());
    let exists = write(&both, Format::Metis, &dir.path().join("m"), None).unwrap_err();
    assert!(exists.to_string().contains("exists already"));
    assert!(Format::named("xml").is_err());
}
