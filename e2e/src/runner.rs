//! Runs scenarios: side by side in one world, exclusive ones afterwards one by one.

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use crate::context::TestContext;
use crate::report;
use crate::world::World;

/// How many scenarios run side by side unless `--test-threads` says otherwise.
const SIDE_BY_SIDE: usize = 4;
/// How long a scenario may take unless it says otherwise.
const LIMIT: Duration = Duration::from_secs(150);

type Body = for<'a> fn(&'a TestContext) -> BoxFuture<'a, Result<()>>;

/// One scenario; made by the macro `scenario!`.
#[derive(Debug, Clone)]
pub struct Scenario {
    name: String,
    body: Body,
    exclusive: bool,
    limit: Duration,
    breaks_the_world: bool,
}

impl Scenario {
    /// A scenario that others may run beside.
    pub fn new(path: &str, body: Body) -> Scenario {
        Scenario {
            name: path.split_whitespace().collect(), // a long path is printed on several lines
            body,
            exclusive: false,
            limit: LIMIT,
            breaks_the_world: false,
        }
    }

    /// Runs while no other does: it breaks what is shared, and mends it, or it measures.
    pub fn exclusive(self) -> Scenario {
        Scenario {
            exclusive: true,
            ..self
        }
    }

    /// Takes at most this long.
    pub fn within(self, limit: Duration) -> Scenario {
        Scenario { limit, ..self }
    }

    /// Needs clusters and ZooKeeper of our own; left out on existing ones.
    pub fn on_our_own(self) -> Scenario {
        Scenario {
            breaks_the_world: true,
            ..self
        }
    }
}

/// Names a scenario by its path: `scenario!(basics::an_app_becomes_ready)`.
#[macro_export]
macro_rules! scenario {
    ($($path:ident)::+) => {
        $crate::Scenario::new(stringify!($($path)::+), |context| Box::pin($($path)::+(context)))
    };
}

/// What the scenarios' threads share.
struct Shared {
    runtime: Runtime,
    world: OnceCell<Result<Arc<World>, String>>,
    /// Exclusive scenarios hold it alone.
    order: RwLock<()>,
}

impl Shared {
    async fn world(&self) -> Result<Arc<World>, Failed> {
        let world = self
            .world
            .get_or_init(|| async { World::start().await.map_err(|error| format!("{error:#}")) })
            .await;
        world
            .clone()
            .map_err(|error| Failed::from(format!("the world did not start: {error}")))
    }
}

/// The main function of the scenarios' test binary: arguments as for any test binary.
pub fn run(scenarios: Vec<Scenario>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(SIDE_BY_SIDE);
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let shared = Arc::new(Shared {
        runtime,
        world: OnceCell::new(),
        order: RwLock::new(()),
    });
    let (exclusive, together): (Vec<Scenario>, Vec<Scenario>) = scenarios.into_iter().partition(|one| one.exclusive);
    let trials = together.into_iter().chain(exclusive).map(|scenario| {
        let (shared, name) = (shared.clone(), scenario.name.clone());
        Trial::test(name, move || {
            let all = &shared.order;
            if scenario.exclusive {
                let _alone = all.write().unwrap_or_else(PoisonError::into_inner);
                shared.runtime.block_on(run_one(&shared, &scenario))
            } else {
                let _beside_others = all.read().unwrap_or_else(PoisonError::into_inner);
                shared.runtime.block_on(run_one(&shared, &scenario))
            }
        })
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    if let Some(Ok(world)) = shared.world.get()
        && let Err(error) = shared.runtime.block_on(world.finish())
    {
        eprintln!("the world did not end well: {error:#}");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// Runs one scenario, collects a report if it fails, and ends what it started.
async fn run_one(shared: &Shared, scenario: &Scenario) -> Result<(), Failed> {
    let world = shared.world().await?;
    if scenario.breaks_the_world && world.is_existing() {
        eprintln!("scenario {}: left out, as it needs clusters of our own", scenario.name);
        return Ok(());
    }
    let start = Instant::now();
    let context = TestContext::new(&world, &scenario.name)?;
    let body = AssertUnwindSafe((scenario.body)(&context)).catch_unwind();
    let result = match tokio::time::timeout(scenario.limit, body).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(anyhow!("an assertion failed; see the panic's message above")),
        Err(_) => Err(anyhow!("not done within {:?}", scenario.limit)),
    };
    let seconds = start.elapsed().as_secs_f64();
    let word = if result.is_ok() { "ok" } else { "FAILED" };
    eprintln!("scenario {}: {word}, {seconds:.1} s", scenario.name);
    let folder = match &result {
        Ok(()) => String::new(),
        Err(_) => match report::collect(&context).await {
            Ok(folder) => format!("\nlogs and objects: {}", folder.display()),
            Err(error) => format!("\nno report: {error:#}"),
        },
    };
    let finished = context.finish().await;
    result.map_err(|error| Failed::from(format!("{error:#}{folder}")))?;
    finished.map_err(|error| Failed::from(format!("cleaning up: {error:#}")))
}
