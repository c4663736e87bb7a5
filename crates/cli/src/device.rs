//! `--device`: where a verb computes.

use graphweft_tensor::{Device, Place, Precision};

use crate::doctor;
use crate::ui::Ui;

#[derive(clap::Args)]
pub(crate) struct Choice {
    /// Where to compute: cpu, cuda, or cuda:1 for the second GPU [default: cuda where a GPU is found, else cpu]
    #[arg(long, value_name = "cpu|cuda[:i]")]
    device: Option<Place>,
}

impl Choice {
    /// The place that was named; else a GPU, if one is there and answers, or the CPU.
    pub(crate) fn place(&self, ui: &Ui) -> Place {
        if let Some(place) = self.device {
            if place != Place::Cpu {
                doctor::load_cuda();
            }
            return place;
        }
        let best = Place::best();
        if best == Place::Cpu {
            return best;
        }
        doctor::load_cuda();
        match best.open(Precision::default()) {
            Ok(_) => best,
            Err(e) => {
                ui.note(&format!("computing on the CPU: {e}"));
                Place::Cpu
            }
        }
    }

    /// A device there, with products of f32 in f32.
    pub(crate) fn open(&self, ui: &Ui) -> anyhow::Result<Device> {
        Ok(self.place(ui).open(Precision::default())?)
    }
}
