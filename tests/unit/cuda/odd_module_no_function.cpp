// A library that is no backend at all.
extern "C" int something_else() {
    return 0;
}
