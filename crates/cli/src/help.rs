//! What `--help` says below the flags: examples, and what holds for every verb.

/// Of the program.
pub(crate) const PROGRAM: &str = "\
Examples:
  graphweft train                                a first run, on a generated graph
  graphweft train --data cora --model gcn --epochs 200
  graphweft train --data products --ranks 4      on four threads
  graphweft plan --data products --ranks 4       what that would take
  graphweft help train                           all flags of a verb

Exit codes:
  0 success                      4 it does not fit into memory
  1 failure                      5 a rank was lost
  2 the command is wrong         75 asked to stop; --resume goes on
  3 bad input: a file, a setting's value

Environment:
  GRAPHWEFT_CACHE  folder for what is kept between runs: measurements of the
                   machine, compiled GPU kernels, what was found valid
                   [default: $XDG_CACHE_HOME/graphweft or ~/.cache/graphweft]
  GRAPHWEFT_MPI    the MPI library of ranks that are processes [default: the
                   one of the launcher that started them]";

pub(crate) const BENCH: &str = "\
Examples:
  graphweft bench train --graph rmat:14:16 --model gt --ranks 2
  graphweft bench attention --graph rmat:16:16 --heads 8
  graphweft bench gemm --hidden 256";

pub(crate) const COMPLETIONS: &str = "\
Examples:
  graphweft completions bash > ~/.bash_completion
  graphweft completions zsh > ~/.zfunc/_graphweft
  graphweft completions fish > ~/.config/fish/completions/graphweft.fish";

pub(crate) const CONFIG: &str = "\
Examples:
  graphweft config                 every setting
  graphweft config train           those of a section
  graphweft config train.lr        one of them
  graphweft config --markdown      docs/config.md";

pub(crate) const DOCTOR: &str = "\
Examples:
  graphweft doctor
  graphweft doctor --json";

pub(crate) const EVAL: &str = "\
Examples:
  graphweft eval runs/cora-gcn
  graphweft eval runs/cora-gcn --data cora-2 --split random";

pub(crate) const EXPORT: &str = "\
Examples:
  graphweft export --data cora --to csv -o cora-tables
  graphweft export --data cora --to parquet -o cora-parquet
  graphweft export --data cora --to npz -o cora.npz";

pub(crate) const GENERATE: &str = "\
Examples:
  graphweft generate sbm:10000:10:12 -o blocks     10 classes, mean degree 12
  graphweft generate rmat:20:16 -o skewed          2^20 nodes, 16 edges each
  graphweft generate grid:300:300+loops -o grid";

pub(crate) const IMPORT: &str = "\
Examples:
  graphweft import table --nodes nodes.csv --edges edges.csv -o mine
  graphweft import edge-list edges.csv.gz -o mine --symmetrise
  graphweft import heterophilous minesweeper.npz -o minesweeper
  graphweft import ogb ogbn_arxiv -o arxiv --symmetrise";

pub(crate) const INFO: &str = "\
Examples:
  graphweft info --data cora
  graphweft info --graph rmat:14:16 --partition --plot graph.svg";

pub(crate) const LAUNCH: &str = "\
Examples:
  graphweft launch -n 4 train --data products -o runs/products
  graphweft launch -n 4 --restarts 3 train --data products -o runs/products
  graphweft launch -n 16 --hostfile hosts train --data /shared/products

It runs mpiexec, which an MPI brings: pip install mpich, or your system's or
cluster's package. The same by hand: mpiexec -n 4 graphweft train --comm mpi.";

pub(crate) const MAN: &str = "\
Examples:
  graphweft man ~/.local/share/man/man1
  man graphweft-train";

pub(crate) const PARTITION: &str = "\
Examples:
  graphweft partition --data arxiv -p 4
  graphweft partition --data papers -p 64 --chunks --memory 8GiB";

pub(crate) const PLAN: &str = "\
Examples:
  graphweft plan --data products --ranks 4
  graphweft plan --data products --ranks 8 --profile h200x8 --plot plan.svg
  graphweft plan --calibrate --ranks 4               measure this machine, again
  graphweft plan --simulate nodes=1e8,edges=3e9,features=128,classes=172 \\
      --ranks 16 --profile 64-cpu-25g

Times have an error: about 10 % if the machine was measured, 30 % for shipped
profiles, 50 % if it was only timed for a moment, as for runs that are short.";

pub(crate) const PREDICT: &str = "\
Examples:
  graphweft predict runs/cora-gcn -o logits.npy
  graphweft predict runs/cora-gcn --data cora-2
  graphweft predict runs/links --top 10 -o partners.csv";

pub(crate) const TRAIN: &str = "\
Examples:
  graphweft train
  graphweft train --data cora --model gcn --hidden 64 --layers 2 --lr 0.01
  graphweft train run.toml train.weight_decay=5e-4 --seeds 10
  graphweft train --data products --ranks 4 --epochs 100 -o runs/products
  graphweft train --resume -o runs/products

Flags and settings take the place of what the file says. A flag is a short form
of a setting, as --lr of train.lr: to give both is an error.";

pub(crate) const REPORT: &str = "\
Examples:
  graphweft report runs/cora-gcn                   writes report.html
  graphweft report runs/a runs/b -o compare.html   side by side";

pub(crate) const RUNS: &str = "\
Examples:
  graphweft runs
  graphweft runs studies --sort test";

pub(crate) const SMOOTH: &str = "\
Examples:
  graphweft smooth runs/arxiv-mlp                  writes runs/arxiv-mlp/smooth
  graphweft smooth runs/arxiv-mlp --weights column --labels train+valid
  graphweft smooth runs/arxiv-mlp --method label-propagation --smooth 0.9";
