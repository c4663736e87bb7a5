//! Tables come out as they are meant, whatever their format, and mistakes are told by file, row and column.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use ::parquet::basic::{Compression, ZstdLevel};
use ::parquet::column::writer::ColumnWriter;
use ::parquet::data_type::ByteArray;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;
use graphweft_base::ErrorKind;

use super::*;
use crate::build::EdgeRules;
use crate::csr::SelfLoops;
use crate::dataset::{Dense, Labels};
use crate::read::imported::NodeIds;
use crate::read::testing::{KEEP, assert_refused, edges, with_context};

fn given(schema: &str, files: &[(&str, &[u8])]) -> Result<Given> {
    let files: BTreeMap<&str, &[u8]> = files.iter().copied().collect();
    let open = |name: &str| Input::memory(name, files.get(name).copied().unwrap_or_default());
    Given::open(toml::from_str(schema).unwrap(), Task::default(), &open)
}

fn read_with(schema: &str, files: &[(&str, &[u8])], rules: EdgeRules) -> Result<Imported> {
    let given = given(schema, files)?;
    with_context(rules, |cx| read(&given, cx))
}

fn read_files(schema: &str, files: &[(&str, &[u8])]) -> Result<Imported> {
    read_with(schema, files, KEEP)
}

fn request(result: Result<Imported>) -> String {
    let error = result.err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
    error.to_string()
}

/// The graph as ends with the first category of each edge.
fn edges_with_categories(mut imported: Imported) -> Vec<(u32, u32, u16)> {
    let codes = imported.edge_categories.take().unwrap();
    let values = (0..codes.rows()).map(|edge| codes.get(edge, 0) as f32).collect::<Vec<_>>();
    imported.edge_features = Some(EdgeFeatures { values: values.into(), width: 1 });
    edges(imported).into_iter().map(|(s, d, x)| (s, d, x as u16)).collect()
}

const BOTH: &str = "[[nodes]]\nfile = \"n\"\n[[edges]]\nfile = \"e\"\n";
const ONLY_EDGES: &str = "[[edges]]\nfile = \"e\"\n";
const NODES: &[u8] = b"name_id,id,year,colour,vector,label,split\n\
    7,ann,1990,red,[1 2],x,train\n7,bob,1.5,blue,\"[3, 4]\",y,valid\n7,\"c \"\"c\"\"\",-2,red,5;6,x,test\n";
const EDGES: &[u8] = b"from,to,weight,kind\nann,bob,1,a\nbob,\"c \"\"c\"\"\",2.5,b\nann,ann,3,a\n";

#[test]
fn words_numbers_and_lists_find_their_places() {
    let imported = read_files(BOTH, &[("n", NODES), ("e", EDGES)]).unwrap();
    let Some(Features::Dense(Dense::F32 { values, width: 4 })) = &imported.features else {
        panic!("{:?}", imported.notes)
    };
    assert_eq!(values[..], [7.0, 1990.0, 1.0, 2.0, 7.0, 1.5, 3.0, 4.0, 7.0, -2.0, 5.0, 6.0]);
    let categories = imported.categories.as_ref().unwrap();
    assert_eq!((categories.values(), categories.sizes()), (vec![1, 0, 1], &[2][..]));
    assert_eq!(imported.labels, Some((Labels::Single(vec![0, 1, 0].into()), 2)));
    assert_eq!(imported.class_names, Some(vec!["x".to_string(), "y".to_string()]));
    assert_eq!(imported.splits[0].train[..], [0]);
    assert_eq!(imported.node_names.as_deref(), Some(&b"ann\nbob\nc \"c\"\n"[..]));
    assert!(imported.types.nodes.is_empty() && imported.types.edges.is_none());
    let text = &imported.texts[0].text;
    assert!(text.contains("colour = [\"blue\", \"red\"]") && text.contains("kind = [\"a\", \"b\"]"), "{text}");
    assert_eq!(imported.edge_features.as_ref().unwrap().values[..], [1.0, 2.5, 3.0]);
    assert_eq!(edges_with_categories(imported), [(0, 0, 0), (0, 1, 0), (1, 2, 1)]);
}

/// Ids that have no table are numbered in the order in which they stand first, whatever is in one piece.
#[test]
fn ids_without_a_table_are_numbered_as_they_come() {
    let imported = read_files(ONLY_EDGES, &[("e", b"from to\nb a\nc b\na d\n")]).unwrap();
    assert_eq!(imported.node_names.as_deref(), Some(&b"b\na\nc\nd\n"[..]));
    assert_eq!(edges(imported), [(2, 0, 0.0), (0, 1, 0.0), (1, 3, 0.0)]);
    // The columns are named, and the destination stands first.
    let imported = read_files(ONLY_EDGES, &[("e", b"target;source\n5;9\n9;7\n")]).unwrap();
    assert_eq!(imported.node_ids, Some(NodeIds::Signed(vec![5, 9, 7])));
    assert_eq!(edges(imported), [(1, 0, 0.0), (2, 1, 0.0)]);
    let many: String = (0..90_000u64).map(|k| format!("n{}\tn{}\n", k * 7919 % 30_011, k * 104_729 % 30_011)).collect();
    let text = format!("source\ttarget\n{many}");
    let imported = read_files(ONLY_EDGES, &[("e", text.as_bytes())]).unwrap();
    let names = imported.node_names.clone().unwrap();
    let names: Vec<&str> = std::str::from_utf8(&names).unwrap().lines().collect();
    let mut found: Vec<String> =
        edges(imported).iter().map(|&(s, d, _)| format!("{}\t{}", names[s as usize], names[d as usize])).collect();
    let mut expected: Vec<&str> = many.lines().collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn compressed_text_is_the_same_text() {
    let plain = read_files(BOTH, &[("n", NODES), ("e", EDGES)]).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(EDGES).unwrap();
    let (gzip, zstd) = (gzip.finish().unwrap(), zstd::encode_all(EDGES, 3).unwrap());
    let expected = edges(plain);
    for packed in [&gzip, &zstd] {
        assert_eq!(edges(read_files(BOTH, &[("n", NODES), ("e", packed)]).unwrap()), expected);
        let cut = read_files(BOTH, &[("n", NODES), ("e", &packed[..packed.len() - 9])]);
        assert_refused(cut, &["e: file"]);
    }
}

const TYPED: &str = "[[nodes]]\ntype = \"author\"\nfile = \"a\"\n[[nodes]]\ntype = \"venue\"\nrows = 2\n\
    [[nodes]]\ntype = \"paper\"\nfile = \"p1\"\n[[nodes]]\ntype = \"paper\"\nfile = \"p2\"\n\
    [[edges]]\ntype = \"writes\"\nfile = \"w\"\nsource_type = \"author\"\ndestination_type = \"paper\"\n\
    [[edges]]\nfile = \"v\"\nsource_type = \"paper\"\ndestination_type = \"venue\"\n\
    [[edges]]\nfile = \"t\"\nsource_type = \"paper\"\ndestination_type = \"topic\"\ntype_column = \"how\"\n";
const TYPED_FILES: [(&str, &[u8]); 6] = [
    ("a", b"author,h,field\nx,1,bio\ny,2,law\n"),
    ("p1", b"id,label,split\n10,1,train\n"),
    ("p2", b"label,id,split\n0,11,valid\n1,12,test\n"),
    ("w", b"author,paper,weight\nx,10,0.5\ny,12,0.25\n"),
    ("v", b"paper,venue\n11,1\n"),
    ("t", b"paper,topic,how\n12,graphs,about\n10,graphs,cites\n12,trees,about\n"),
];

#[test]
fn types_lie_one_after_the_other() {
    let imported = read_files(TYPED, &TYPED_FILES).unwrap();
    let types: Vec<_> = imported.types.nodes.iter().map(|t| (t.name.as_str(), t.num_nodes, t.num_features)).collect();
    // A category is a column of features for each of its words.
    assert_eq!(types, [("author", 2, 3), ("venue", 2, 0), ("paper", 3, 0), ("topic", 2, 0)]);
    let Some(Some(Features::Sparse(m))) = imported.types.features.first() else { panic!("sparse") };
    assert_eq!((&m.indices[..], &m.data.as_ref().unwrap()[..]), (&[0, 1, 0, 2][..], &[1.0, 1.0, 2.0, 1.0][..]));
    assert_eq!(imported.types.edge_names, ["writes", "paper-venue", "about", "cites"]);
    assert_eq!(imported.types.edges.as_ref().unwrap().to_vec(), [0, 0, 1, 2, 3, 2]);
    assert_eq!(imported.labels, Some((Labels::Single(vec![-1, -1, -1, -1, 1, 0, 1, -1, -1].into()), 2)));
    assert_eq!(imported.splits[0].test[..], [6]);
    assert_eq!(imported.node_names.as_deref(), Some(&b"x\ny\n0\n1\n10\n11\n12\ngraphs\ntrees\n"[..]));
    let expected = [(5, 3, 0.0), (0, 4, 0.5), (1, 6, 0.25), (4, 7, 0.0), (6, 7, 0.0), (6, 8, 0.0)];
    assert_eq!(edges(imported), expected);

    // A reverse is of a type of its own, and carries what its edge carries.
    let both = read_with(TYPED, &TYPED_FILES, EdgeRules { symmetrise: true, ..KEEP }).unwrap();
    assert_eq!(both.types.edge_names[4..], ["rev_writes", "rev_paper-venue", "rev_about", "rev_cites"]);
    let back: Vec<_> = edges(both).into_iter().filter(|e| e.2 > 0.0).collect();
    assert_eq!(back, [(4, 0, 0.5), (6, 1, 0.25), (0, 4, 0.5), (1, 6, 0.25)]);
}

#[test]
fn types_that_do_not_fit_are_refused() {
    let with = |from: &str, to: &str| read_files(&TYPED.replace(from, to), &TYPED_FILES);
    assert!(request(with("type = \"author\"\nfile", "file")).contains("others have none"));
    assert!(
        request(with("source_type = \"author\"\n", ""))
            .contains("between which of the types author, venue, paper, topic")
    );
    assert!(request(with("\"topic\"", "\"a/b\"")).contains("is no name of a type"));
    let labelled = [TYPED_FILES[1].1, b""].concat();
    let files: Vec<_> = TYPED_FILES.iter().map(|&(n, f)| if n == "a" { (n, &labelled[..]) } else { (n, f) }).collect();
    assert_refused(read_files(TYPED, &files), &["w: line 2, column 1", "there is no node x in a"]);
    let other = |name: &str, text: &'static [u8]| {
        let files: Vec<_> = TYPED_FILES.iter().map(|&(n, f)| if n == name { (n, text) } else { (n, f) }).collect();
        read_files(TYPED, &files)
    };
    assert_refused(other("p2", b"id,x,label,split\n11,1,0,test\n"), &["p2: line 1", "feature: x; p1 has none"]);
    assert_refused(other("p2", b"id,label,split\n10,0,test\n"), &["row 1 has the id 10, which a table before has"]);
    assert_refused(other("v", b"paper,venue\n11,2\n"), &["v: line 2, column 2", "2 is none of the 2 nodes"]);
    assert_refused(other("v", b"paper,venue,a,b\n11,1,1,2\n"), &["v: line 1", "a, b; a table before has weight"]);
    assert_refused(other("v", b"paper,venue,a\n11,1,x\n"), &["v: line 1", "categories are a"]);
    assert_refused(other("t", b"paper,topic,how\n12,graphs,\n"), &["t: types", "an edge has no type"]);
    let rules = EdgeRules { symmetrise: true, self_loops: SelfLoops::Keep, ..KEEP };
    let named = TYPED.replace("\"writes\"", "\"rev_about\"");
    assert!(request(read_with(&named, &TYPED_FILES, rules)).contains("rev_about is a relation"));
}

#[test]
fn mistakes_are_told_by_row_and_column() {
    let nodes = |text: &str, words: &[&str]| {
        assert_refused(read_files(BOTH, &[("n", text.as_bytes()), ("e", b"source,target\n1,1\n")]), words);
    };
    let rows = |x: &str| format!("id,x,v\n1,2,3 4\n2,{x},5 6\n");
    for value in ["nan", "inf", "1e99", "word", ""] {
        let told = format!("\"x\": \"{value}\" is no number");
        nodes(&rows(value), &["n: line 3, column 2", &told, "fill the field in", "--column NAME=skip"]);
    }
    nodes("id,v\n1,1 2\n2,1 2 3\n", &["n: line 3, column 2", "a list of 3 numbers, the first row has 2"]);
    nodes("id,v\n1,1 2\n2,1 x\n", &["n: line 3, column 2", "no number"]);
    nodes("id,x\n1,1\n2\n", &["n: line 3", "1 columns, the first line has 2"]);
    nodes("id,x\n1,1\n2,2\n1,3\n", &["n: ids", "rows 1 and 3 both have the id 1"]);
    nodes("id,x\n1,\"1\n", &["n: line 2, column 2", "not closed"]);
    nodes("id,split\n1,train\n2,tset\n", &["n: line 3, column 2", "no part of a split"]);
    nodes("id,id\n1,1\n", &["n: line 1", "both called"]);
}

#[test]
fn mistakes_in_edges_are_told_too() {
    let nodes: &[u8] = b"id,x\n1,1\n2,2\n";
    let wrong =
        |text: &str, words: &[&str]| assert_refused(read_files(BOTH, &[("n", nodes), ("e", text.as_bytes())]), words);
    wrong("source,target\n1,2\n2,3\n", &["e: line 3, column 2", "no node 3 in n"]);
    wrong("source,target\n1,2\n2,\n", &["e: line 3, column 2", "\"\" is no node id"]);
    wrong("source\n1\n", &["e: line 1", "there is no column for the destination"]);
    wrong("source,target\n", &["e: file", "no row"]);
    wrong("source,target,w\n1,2,nan\n", &["e: line 2, column 3"]);
    wrong("source,src\n1,2\n", &["could both be the source"]);
    let long = format!("source,target\n1,2\n1,{}\n", "9".repeat(5000));
    wrong(&long, &["e: line 3, column 2", "1 to 4096 bytes"]);
    let schema = |text: &str| read_files(&format!("{BOTH}{text}"), &[("n", nodes), ("e", b"a,b\n1,2\n")]);
    assert_refused(schema("source = \"zz\""), &["e: line 1", "no column \"zz\"", "the columns are: a, b"]);
    assert_refused(schema("label = \"a\""), &["e: line 1", "there is no column for the destination"]);
    let twice = format!("{BOTH}source = [\"a\", \"b\"]");
    let twice = read_files(&twice, &[("n", nodes), ("e", b"a,b,c\n1,2,3\n")]);
    assert_refused(twice, &["cannot both be the source"]);
    assert!(request(read_files("[[nodes]]\nfile = \"n\"\n", &[("n", nodes)])).contains("no table of edges"));
    assert!(request(read_files("[[nodes]]\n[[edges]]\nfile = \"e\"\n", &[("e", b"1 2\n")])).contains("has no file"));
}

#[test]
fn a_column_is_what_the_user_says() {
    let nodes: &[u8] = b"key,size,word,extra\nk,3,u,1\nl,300,v,2\n";
    let with = |columns: &[&str]| {
        let mut given = given(BOTH, &[("n", nodes), ("e", b"source,target,extra\nk,l,9\n")]).unwrap();
        given.schema.columns = columns.iter().map(|c| ColumnRole::parse(c).unwrap()).collect();
        with_context(KEEP, |cx| read(&given, cx))
    };
    let imported = with(&["key=id", "size=category", "n.word=skip", "extra=skip"]).unwrap();
    assert_eq!(imported.categories.as_ref().unwrap().sizes(), [2], "more are left out than are there");
    assert!(imported.features.is_none() && imported.edge_features.is_none());
    assert!(imported.texts[0].text.contains("size = [\"3\", \"300\"]"));
    let imported = with(&["key=id", "n.extra=label", "word=skip"]).unwrap();
    assert_eq!(imported.labels, Some((Labels::Single(vec![1, 2].into()), 3)));
    assert!(request(with(&["nosuch=skip"])).contains("no table has the column that nosuch=skip names"));
    assert!(ColumnRole::parse("a=b").unwrap_err().to_string().contains("\"b\" is nothing that a column can be for"));
    assert!(ColumnRole::parse("a").is_err());
}

#[test]
fn what_is_guessed_is_a_schema_that_reads_the_same() {
    let files = TYPED_FILES;
    let first = given(TYPED, &files).unwrap();
    let (guess, expected) = with_context(KEEP, |cx| (guess(&first, cx).unwrap(), read(&first, cx).unwrap()));
    let text = toml::to_string(&guess.schema).unwrap();
    assert!(text.contains("id = \"author\"") && text.contains("categories = \"field\""), "{text}");
    let again = read_files(&text, &files).unwrap();
    assert_eq!(again.types, expected.types);
    assert_eq!(edges(again), edges(expected));
    let column = |name: &str| guess.columns.iter().find(|c| c.name == name).unwrap();
    assert_eq!((column("h").holds.as_str(), column("h").used_as), ("integers", "feature"));
    assert_eq!((column("how").used_as, column("how").example.as_str()), ("type", "about"));
}

/// A Parquet file of some columns: text, integers, floats with one missing, lists.
fn parquet(compression: Compression, missing: &[usize], rows_of_group: usize) -> Vec<u8> {
    let message = "message m { required binary id (UTF8); required int32 year; optional double x; \
                   optional group vector (LIST) { repeated group list { optional float element; } } \
                   required binary price (DECIMAL(9, 2)); }";
    let schema = Arc::new(parse_message_type(message).unwrap());
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
    let ids: Vec<ByteArray> = ["ann", "bob", "cyd"].iter().map(|id| ByteArray::from(*id)).collect();
    for rows in (0..3usize).collect::<Vec<_>>().chunks(rows_of_group) {
        let mut group = writer.next_row_group().unwrap();
        let mut number = 0;
        while let Some(mut column) = group.next_column().unwrap() {
            match column.untyped() {
                ColumnWriter::ByteArrayColumnWriter(w) => {
                    let values: Vec<ByteArray> = rows.iter().map(|k| ids[*k].clone()).collect();
                    w.write_batch(&values, None, None).unwrap();
                }
                ColumnWriter::Int32ColumnWriter(w) => {
                    w.write_batch(&rows.iter().map(|&k| 2000 + k as i32).collect::<Vec<_>>(), None, None).unwrap();
                }
                ColumnWriter::DoubleColumnWriter(w) => {
                    let known: Vec<usize> = rows.iter().copied().filter(|k| !missing.contains(k)).collect();
                    let levels: Vec<i16> = rows.iter().map(|k| i16::from(!missing.contains(k))).collect();
                    w.write_batch(&known.iter().map(|&k| k as f64 / 2.0).collect::<Vec<_>>(), Some(&levels), None)
                        .unwrap();
                }
                ColumnWriter::FloatColumnWriter(w) => {
                    let values: Vec<f32> = rows.iter().flat_map(|&k| [k as f32, -(k as f32)]).collect();
                    let repetitions: Vec<i16> = rows.iter().flat_map(|_| [0, 1]).collect();
                    w.write_batch(&values, Some(&vec![3; values.len()]), Some(&repetitions)).unwrap();
                }
                _ => panic!("no such column"),
            }
            column.close().unwrap();
            number += 1;
        }
        assert_eq!(number, 5);
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

#[test]
fn parquet_is_read_as_text_is() {
    let edges_text: &[u8] = b"source,target\nann,cyd\nbob,ann\n";
    let zstd = Compression::ZSTD(ZstdLevel::try_new(3).unwrap());
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, zstd, Compression::GZIP(Default::default())] {
        for rows_of_group in [1, 2, 3] {
            let bytes = parquet(compression, &[], rows_of_group);
            let imported = read_files(BOTH, &[("n", &bytes), ("e", edges_text)]).unwrap();
            let Some(Features::Dense(Dense::F32 { values, width: 4 })) = &imported.features else { panic!("dense") };
            assert_eq!(values[..], [2000.0, 0.0, 0.0, 0.0, 2001.0, 0.5, 1.0, -1.0, 2002.0, 1.0, 2.0, -2.0]);
            assert_eq!(imported.node_names.as_deref(), Some(&b"ann\nbob\ncyd\n"[..]));
            assert_eq!(edges(imported), [(1, 0, 0.0), (0, 2, 0.0)]);
        }
    }
    let missing = parquet(Compression::SNAPPY, &[1], 3);
    let words = ["n: row 2, column 3", "\"x\": a missing value is no number"];
    assert_refused(read_files(BOTH, &[("n", &missing), ("e", edges_text)]), &words);
    let good = parquet(Compression::SNAPPY, &[], 3);
    let price = BOTH.replace("[[edges]]", "features = \"price\"\n[[edges]]");
    assert_refused(read_files(&price, &[("n", &good), ("e", edges_text)]), &["column \"price\"", "decimals"]);
    for cut in [4, 20, good.len() - 5] {
        assert_refused(read_files(BOTH, &[("n", &good[..cut]), ("e", edges_text)]), &["n: "]);
    }
    // Both ends from one file: a node that refers to another.
    let both = "[[edges]]\nfile = \"e\"\nsource = \"id\"\ndestination = \"year\"\nskip = [\"vector\", \"x\"]\n";
    let imported = read_files(both, &[("e", &good)]).unwrap();
    assert_eq!(imported.node_names.as_deref(), Some(&b"ann\n2000\nbob\n2001\ncyd\n2002\n"[..]));
}
