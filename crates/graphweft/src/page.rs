//! Runs and plans as a page to look at, and runs as a list.

mod analysis;
mod live;

use std::path::Path;

use graphweft_report::{Context, Growing, ListedRun, Renewals};
use graphweft_train::config::Draft;
use graphweft_train::data::Data;
use toml::Table;

use crate::VERSION;
use crate::error::Result;
use crate::plan::Plan;

pub(crate) use live::LivePage;

/// One HTML file that shows a run, several runs beside each other, or a plan. Everything is inside; it opens from disk,
/// needs no network, and can be sent by mail.
///
/// ```
/// use graphweft::{Page, Run};
/// # let dir = tempfile::tempdir().unwrap();
/// let report = Run::new("sbm:60:3:4:f=8").epochs(3).output(dir.path().join("run")).train()?;
/// Page::of_runs(&[&report.folder])?.write(dir.path().join("report.html"))?;
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Page(graphweft_report::Page);

impl Page {
    /// The runs in a folder and below it, of which a page can be made.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// graphweft::Run::new("sbm:60:3:4:f=8").epochs(2).output(dir.path().join("a")).train()?;
    /// let all = graphweft::Page::runs(dir.path())?;
    /// assert_eq!((all.len(), all[0].state), (1, "finished"));
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn runs(dir: impl AsRef<Path>) -> Result<Vec<ListedRun>> {
        Ok(graphweft_report::list(dir.as_ref())?)
    }

    /// The page of the runs in these folders, finished or still going.
    ///
    /// # Errors
    /// If one of them is not the folder of a run. Files that are missing or damaged become remarks on the page.
    pub fn of_runs<P: AsRef<Path>>(folders: &[P]) -> Result<Self> {
        let analyse = |folder: &Path| analysis::of_run(folder, None).map_err(|e| e.to_string());
        Ok(Self(graphweft_report::Page::of_runs(folders, &context(Some(&analyse), &Growing::default()))?))
    }

    /// The page of a run that is over, of data that are still open.
    fn of_ended(folder: &Path, data: &Data, before: &Growing) -> Result<Self> {
        let analyse = |folder: &Path| analysis::of_run(folder, Some(data)).map_err(|e| e.to_string());
        Ok(Self(graphweft_report::Page::of_runs(&[folder], &context(Some(&analyse), before))?))
    }

    /// The same without looking at the data: no statistics, no classes.
    fn of_files(folder: &Path, before: &Growing) -> Result<Self> {
        Ok(Self(graphweft_report::Page::of_runs(&[folder], &context(None, before))?))
    }

    /// With what renewing it has taken.
    fn renewed(self, renewals: &Renewals) -> Self {
        Self(self.0.renewed(renewals))
    }

    /// Of a run that has ended, whatever the lock on its folder says.
    fn over(self) -> Self {
        Self(self.0.over())
    }

    /// The page of a plan.
    ///
    /// ```
    /// use graphweft::{Page, Run};
    /// let plan = Run::new("sbm:400:4:8:f=8").ranks(2).set("parallel.profile", "16-cpu-10g").plan()?;
    /// assert!(Page::of_plan(&plan).to_html()?.contains("<title>"));
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    pub fn of_plan(plan: &Plan) -> Self {
        Self(graphweft_report::Page::of_plan(&plan.title, &plan.to_json(), &context(None, &Growing::default())))
    }

    /// The file as text.
    ///
    /// # Errors
    /// If its data cannot be packed.
    pub fn to_html(&self) -> Result<String> {
        Ok(self.0.to_html()?)
    }

    /// Writes it. Whoever has the old file open keeps it until it is replaced as a whole.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        Ok(self.0.write(path.as_ref())?)
    }
}

/// What the page must know beside the files of a run.
fn context<'a>(analyse: Option<graphweft_report::Analyse<'a>>, before: &Growing) -> Context<'a> {
    Context { defaults: &defaults_of, version: VERSION.into(), analyse, before: before.clone() }
}

/// Every key with its default, for a model.
fn defaults_of(model: &str) -> Table {
    let mut draft = Draft::default();
    let named = draft.set("model", "name", model).and_then(|()| draft.finish()).or_else(|_| Draft::default().finish());
    let text = named.and_then(|config| config.to_toml()).unwrap_or_default();
    text.parse().unwrap_or_default()
}
